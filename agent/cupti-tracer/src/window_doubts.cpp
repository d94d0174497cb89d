#include "window_doubts.h"

#include <algorithm>
#include <string>

#include "buffer_pool.h"

namespace replaywatch::tracer {
namespace {

constexpr size_t kEnoughMarks = 3;
constexpr uint64_t kSilentShare = 4;  // records that end this fraction of the window before the last step

uint64_t last_record_ns(const WindowReport &report, const std::vector<StepMark> &marks) {
  uint64_t last_ns = marks.front().unix_ns;
  for (const DeviceReport &device : report.devices) last_ns = std::max(last_ns, device.last_start_ns);
  return last_ns;
}

}  // namespace

void add_doubts(WindowReport &report, const std::vector<StepMark> &marks, uint64_t buffers_requested) {
  const uint64_t dropped = report.buffers_refused;
  if (report.buffers_foreign != 0)  // asked for by a client that was here before; what it held is lost to it
    report.reasons.push_back("buffers of another CUPTI client came here: " + std::to_string(report.buffers_foreign));
  if (report.read.foreign_records != 0) {
    report.yielded = true;
    report.reasons.insert(report.reasons.begin(), "another CUPTI client is recording (activity kind " +
                                                      std::to_string(report.read.foreign_kind) +
                                                      "); windows leave CUPTI to it for some minutes");
  }
  if (dropped != 0)
    report.reasons.push_back("no buffer was free " + std::to_string(dropped) + " times; CUPTI dropped records");
  if (report.buffers_lost >= BufferPool::kMainSlots)
    report.reasons.push_back(
        "another CUPTI client kept all record buffers; kernels are no longer seen in this process");
  // Seen with CUPTI 13.0 in eager loops: copies came, some without stamps, and none of some 900 kernels a step.
  if (!report.graph_level && report.read.records != 0 && report.read.kernels == 0)
    report.reasons.push_back("CUPTI recorded " + std::to_string(report.read.records) +
                             " copies and memory sets and no kernel");
  if (!report.graph_level && report.read.kernels != 0 && report.read.own_kernels == 0)
    report.reasons.push_back("CUPTI brought " + std::to_string(report.read.kernels) +
                             " kernels of an earlier stretch and none of this one");
  if (report.read.store_full != 0) report.reasons.push_back("the table of records was full before the window ended");
  if (!report.graph_level && report.read.records == 0 && buffers_requested != 0 && marks.size() < kEnoughMarks)
    report.reasons.push_back("CUPTI took record buffers (" + std::to_string(buffers_requested) +
                             ") and gave none back in time");
  if (report.graph_level || marks.size() < kEnoughMarks) return;
  if (report.read.records == 0) {
    report.reasons.push_back(
        std::to_string(marks.size()) + " steps ran and no kernel was recorded: another CUPTI client " +
        (buffers_requested == 0 ? "took the buffer callbacks or switched kernel tracing off" : "emptied the buffers"));
    return;
  }
  const uint64_t silent_ns = (report.edges.disabled_ns - report.edges.enabled_ns) / kSilentShare;
  if (last_record_ns(report, marks) + silent_ns < marks.back().unix_ns)
    report.reasons.push_back("kernel records end before the steps do: another CUPTI client took over in the window");
}

}  // namespace replaywatch::tracer
