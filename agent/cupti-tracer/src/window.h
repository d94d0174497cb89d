// One window: kernel records on, wait, off, flush, read. Runs on the helper thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "buffer_pool.h"
#include "cupti_api.h"
#include "record_clock.h"
#include "record_reader.h"
#include "record_store.h"
#include "step_marks.h"
#include "window_report.h"

namespace replaywatch::tracer {

// Waits some milliseconds; true when the window must end now.
using Pause = std::function<bool(uint32_t wait_ms)>;

class WindowRunner {
 public:
  // Loads CUPTI and maps the memory. Returns why not, or an empty text. Idempotent.
  std::string open();
  const CuptiApi &api() const { return api_; }

  // Graph-level records for the life of the process. Returns why not, or an empty text.
  std::string enable_graph_level();
  bool graph_level() const { return graph_level_; }

  // Gets every buffer back that CUPTI still fills, so that the next client's records do not land in one of ours. Only
  // between windows. Blocks some milliseconds; true when none is left.
  bool evict_buffers();
  uint64_t forced_flushes() const { return forced_flushes_.load(std::memory_order_relaxed); }

  // A window of at most `duration_ms`. `live` is 1 while kernels are recorded.
  WindowReport run(uint32_t duration_ms, const StepMarks &marks, std::atomic<uint32_t> &live, const Pause &pause);

 private:
  class KindsOn;
  std::string enable_kinds();
  void disable_kinds();
  void record(uint32_t duration_ms, WindowReport &report, std::atomic<uint32_t> &live, const Pause &pause);
  void record_graph_level(uint32_t duration_ms, WindowReport &report, const Pause &pause);
  void wait(uint32_t duration_ms, WindowReport &report, const Pause &pause);
  void collect(WindowReport &report, const Pause &pause);
  void flush_by_force();
  size_t drain();

  CuptiApi api_;
  bool open_ = false;
  bool graph_level_ = false;
  bool copies_ = false, sets_ = false;  // kinds that are enabled beside kernels
  ClockReading begin_, end_;            // of the window that runs
  uint64_t last_end_ = 0;               // graph level: where the stretch before this one ended, on CUPTI's clock
  std::mutex evicting_;  // never held while CUPTI is called from a window
  std::atomic<uint64_t> forced_flushes_{0};
  uint32_t forced_in_vain_ = 0;  // windows in a row whose kernels did not come by force either
  BufferPool pool_;
  RecordStore store_;
  RecordReader reader_;
};

// The gaps and durations of calibration kernels.
CalibrationRecords sum_calibration(std::vector<Record> &records);

}  // namespace replaywatch::tracer
