// What one window says about one device; the names are those of replaywatch.contract.window.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device_records.h"
#include "histogram.h"
#include "steps.h"

namespace replaywatch::tracer {

// TracedWork, as far as kernel records carry it.
struct TracedWork {
  uint64_t steps = 0, skipped_steps = 0;
  uint64_t span_ns = 0;
  double span_sq_ns2 = 0.0;
  uint64_t busy_ns = 0, kernel_ns = 0;
  uint64_t graph_kernels = 0, eager_kernels = 0, graph_kernel_ns = 0, eager_kernel_ns = 0;
  uint64_t chain_kernels = 0, graph_busy_ns = 0;
  uint64_t launches = 0, graph_launches = 0;
  uint64_t copies = 0, copy_ns = 0, input_copies = 0, input_copy_ns = 0, input_copy_bytes = 0;
  uint64_t replay_gap_ns = 0, in_graph_gap_ns = 0, in_graph_gaps = 0;
  uint64_t total_span_ns = 0, total_busy_ns = 0, total_kernels = 0, total_graph_kernels = 0;
};

// Timing, as far as kernel or graph records carry it.
struct WindowTiming {
  Histogram replay, replay_gap, launch_gap, step_period;
  std::array<Histogram, 4> step_by_kind;  // by StepKind; [0] unused
};

struct StreamWork {
  uint32_t stream = 0;
  uint64_t kernels = 0, kernel_ns = 0, gap_ns = 0;
};

struct DeviceReport {
  uint16_t device = 0;
  bool graph_level = false;    // from graph records: `traced` says nothing then
  uint64_t replays = 0;        // distinct, edges included
  uint64_t last_start_ns = 0;  // of any record with stamps, used or not
  StepSource steps_from = StepSource::kNone;
  bool correlation_trusted = true;
  TracedWork traced;
  WindowTiming timing;
  Drops drops;
  std::vector<StreamWork> streams;  // busiest first, at most 8
};

// The report of one device from its sorted records and the step marks of the window (on CUPTI's clock).
DeviceReport analyse_kernels(DeviceRecords &work, const WindowEdges &edges, const std::vector<StepMark> &marks);

// The same from graph-level records: replays and the gaps between them.
DeviceReport analyse_graph_level(DeviceRecords &work, const WindowEdges &edges);

// All devices of a window; sorts the records in place.
std::vector<DeviceReport> analyse(Record *first, size_t count, const WindowEdges &edges,
                                  const std::vector<StepMark> &marks);

}  // namespace replaywatch::tracer
