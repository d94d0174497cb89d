#include "frame.h"

#include <unistd.h>

#include <cstdio>

#include "json_writer.h"
#include "record_clock.h"
#include "report_json.h"

namespace replaywatch::tracer {
namespace {

constexpr const char *kSignal = "kernels";

std::string first_line(const char *path) {
  char text[64] = {};
  if (FILE *file = fopen(path, "re"); file != nullptr) {
    if (fgets(text, sizeof text, file) == nullptr) text[0] = '\0';
    fclose(file);
  }
  std::string line = text;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

void write_blind(JsonWriter &json, const WindowReport &report) {
  std::vector<std::string> reasons = report.reasons;
  if (!report.refused.empty()) reasons.push_back(report.refused);
  if (reasons.empty()) return;
  json.begin_array("blind");
  for (const std::string &reason : reasons)
    json.begin_object().field("signal", kSignal).field("reason", reason).end_object();
  json.end_array();
}

}  // namespace

FrameIdentity FrameIdentity::of_this_process() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return {host, first_line("/proc/self/comm"), static_cast<uint32_t>(getpid()), unix_now_ns()};
}

void FrameBuilder::write_cost(JsonWriter &json, const HelperCost &cost, const FrameTraffic &traffic) {
  json.begin_object("cost").count("helper_cpu_ns", cost.cpu_ns - last_cost_.cpu_ns);
  json.count("traced_windows", cost.windows - last_cost_.windows);
  json.count("traced_ns", cost.traced_ns - last_cost_.traced_ns);
  json.count("frames_sent", traffic.sent - last_traffic_.sent);
  json.count("frames_dropped", traffic.dropped - last_traffic_.dropped).end_object();
  last_cost_ = cost;
  last_traffic_ = traffic;
}

std::string FrameBuilder::frame(const WindowReport &report, const DeviceReport *device, const HelperCost *cost,
                                const FrameTraffic *traffic) {
  const uint64_t now_ns = unix_now_ns();
  const std::string key = identity_.node + ":" + std::to_string(identity_.pid) + ":" +
                          std::to_string(identity_.started_ns) + ":" + std::to_string(++serial_);
  JsonWriter json;
  json.begin_object().field("v", 1).field("key", key).field("sent_ns", now_ns);
  json.begin_array("windows").begin_object();
  json.begin_object("workload").field("name", identity_.name).field("node", identity_.node).field("pid", identity_.pid);
  if (device != nullptr) json.field("gpu_index", static_cast<uint64_t>(device->device));
  json.end_object();
  json.field("start_ns", report.start_unix_ns != 0 ? report.start_unix_ns : now_ns);
  json.field("end_ns", report.end_unix_ns != 0 ? report.end_unix_ns : now_ns).field("origin", "probe");
  if (device != nullptr) {
    json.begin_object("dispatch").field("replays", device->replays).end_object();
    write_timing(json, device->timing);
    if (!device->graph_level && device->traced.total_kernels != 0) write_traced(json, *device, report.dropped_elsewhere());
  }
  if (cost != nullptr) write_cost(json, *cost, *traffic);
  write_blind(json, report);
  return json.end_object().end_array().end_object().text();
}

std::vector<std::string> FrameBuilder::build(const WindowReport &report, const HelperCost &cost,
                                             const FrameTraffic &traffic) {
  std::vector<std::string> frames;
  for (const DeviceReport &device : report.devices) {
    const bool first = frames.empty();
    frames.push_back(frame(report, &device, first ? &cost : nullptr, first ? &traffic : nullptr));
  }
  if (frames.empty()) frames.push_back(frame(report, nullptr, &cost, &traffic));
  return frames;
}

}  // namespace replaywatch::tracer
