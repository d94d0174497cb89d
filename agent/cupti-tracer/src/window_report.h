// What one window came to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device_report.h"
#include "record_reader.h"

namespace replaywatch::tracer {

// Null kernels of the calibration that ran inside the window.
struct CalibrationRecords {
  uint64_t kernels = 0;
  uint64_t kernel_ns = 0;
  uint64_t graph_gaps = 0;
  uint64_t graph_gap_ns = 0;
};

struct WindowReport {
  std::string refused;               // why there was no window at all; everything below is empty then
  std::vector<std::string> reasons;  // what the window could not see
  bool yielded = false;              // another CUPTI client was met: no more windows until told so
  bool graph_level = false;
  bool ended_early = false;
  uint64_t start_unix_ns = 0, end_unix_ns = 0;
  WindowEdges edges;
  double clock_rate = 1.0;  // ticks of CUPTI's clock in a nanosecond, where a client replaced it (RecordClock)
  uint64_t enable_ns = 0, disable_ns = 0, flush_ns = 0;  // time inside the CUPTI calls, on the helper thread
  uint64_t marks = 0;
  ReadCounts read;
  uint64_t buffers_refused = 0, buffers_foreign = 0, buffers_lost = 0, cupti_dropped = 0;
  CalibrationRecords calibration;
  std::vector<DeviceReport> devices;

  // Records that never reached a device's table.
  uint64_t dropped_elsewhere() const { return read.store_full + cupti_dropped; }
};

// The report as the JSON text that the C border hands out.
std::string to_json(const WindowReport &report);

}  // namespace replaywatch::tracer
