#include "window_report.h"

#include "report_json.h"

namespace replaywatch::tracer {

std::string to_json(const WindowReport &report) {
  JsonWriter json;
  json.begin_object();
  if (!report.refused.empty()) json.field("refused", report.refused);
  json.begin_array("reasons");
  for (const std::string &reason : report.reasons) json.element(reason);
  json.end_array();
  json.field("yielded", report.yielded).field("graph_level", report.graph_level);
  json.field("ended_early", report.ended_early).field("clock_rate", report.clock_rate);
  json.field("start_ns", report.start_unix_ns).field("end_ns", report.end_unix_ns);
  json.field("enable_ns", report.enable_ns).field("disable_ns", report.disable_ns).field("flush_ns", report.flush_ns);
  json.field("marks", report.marks).field("records", report.read.records);
  json.begin_object("lost").field("store_full", report.read.store_full).field("cupti", report.cupti_dropped);
  json.field("buffers_refused", report.buffers_refused).field("buffers_foreign", report.buffers_foreign);
  json.field("buffers_lost", report.buffers_lost).field("bad_buffers", report.read.bad_buffers).end_object();
  json.begin_object("calibration").field("kernels", report.calibration.kernels);
  json.field("kernel_ns", report.calibration.kernel_ns).field("graph_gaps", report.calibration.graph_gaps);
  json.field("graph_gap_ns", report.calibration.graph_gap_ns).end_object();
  json.begin_array("devices");
  for (const DeviceReport &device : report.devices) write_device(json, device, report.dropped_elsewhere());
  json.end_array().end_object();
  return json.text();
}

}  // namespace replaywatch::tracer
