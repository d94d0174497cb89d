// The C border: every function catches all, and a fault switches the tracer off rather than reach the application.
#include <chrono>
#include <thread>

#include "calibrate.h"
#include "injection.h"
#include "json_writer.h"
#include "known_pairs.h"
#include "neighbours.h"
#include "process_events.h"
#include "report_json.h"
#include "rw_tracer.h"
#include "text_border.h"
#include "tracer.h"

#define RW_EXPORT extern "C" __attribute__((visibility("default")))

using namespace replaywatch::tracer;

namespace {

constexpr uint32_t kCalibrationWindowMs = 60;
constexpr uint32_t kWindowOpensWithinMs = 500;

template <typename Result, typename Body>
Result guarded(Result at_fault, Body &&body) noexcept {
  try {
    return body();
  } catch (...) {
    return at_fault;
  }
}

const char *name_of(PairEffect effect) {
  switch (effect) {
    case PairEffect::kRefuse: return "refuse";
    case PairEffect::kRefuseGraphLevel: return "refuse_graph_level";
    case PairEffect::kNote: break;
  }
  return "note";
}

// The in-graph gap as a kernel window sees it, on a thread of its own while this one launches.
std::string traced_replays(NullKernels &kernels, WindowReport &report) {
  Tracer &tracer = Tracer::instance();
  std::thread window(
      [&]() noexcept { report = guarded<WindowReport>({}, [&] { return tracer.run_window(kCalibrationWindowMs); }); });
  struct Joiner {
    std::thread &thread;
    ~Joiner() {
      if (thread.joinable()) thread.join();
    }
  } joiner{window};
  for (uint32_t ms = 0; ms < kWindowOpensWithinMs && tracer.live().load() == 0; ++ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return tracer.live().load() != 0 ? kernels.replay() : std::string();
}

std::string calibration_json(const std::string &why, const LaunchCosts &costs, const WindowReport &report) {
  JsonWriter json;
  json.begin_object();
  if (!why.empty()) return json.field("refused", why).end_object().text();
  json.field("launch_host_ns", costs.launch_host_ns).field("launch_device_ns", costs.launch_device_ns);
  json.field("graph_launch_host_ns", costs.graph_launch_host_ns).field("graph_node_ns", costs.graph_node_ns);
  const CalibrationRecords &seen = report.calibration;
  if (seen.graph_gaps != 0) json.field("in_graph_gap_ns", seen.graph_gap_ns / seen.graph_gaps);
  if (seen.kernels != 0) json.field("null_kernel_ns", seen.kernel_ns / seen.kernels);
  if (!report.refused.empty()) json.field("trace_refused", report.refused);
  return json.end_object().text();
}

}  // namespace

RW_EXPORT int32_t rw_tracer_abi_version() { return RW_TRACER_ABI_VERSION; }

RW_EXPORT int32_t rw_tracer_open(char *reason, size_t capacity) {
  return guarded<int32_t>(RW_FAILED, [&] {
    std::string why;
    const Outcome outcome = Tracer::instance().open(why);
    copy_message(why, reason, capacity);
    if (outcome == Outcome::kOk) watch_process();
    return static_cast<int32_t>(outcome);
  });
}

RW_EXPORT int64_t rw_tracer_run_window(uint32_t duration_ms, char *json, size_t capacity) {
  return guarded<int64_t>(0, [&]() -> int64_t {
    const std::string text = to_json(Tracer::instance().run_window(duration_ms));
    const int64_t length = copy_out(text, json, capacity);
    if (length < 0) Tracer::instance().put_back(text);  // not lost: collect hands it out
    return length;
  });
}

RW_EXPORT int32_t rw_tracer_start(uint32_t period_ms, uint32_t duration_ms) {
  return guarded<int32_t>(RW_FAILED, [&] {
    return static_cast<int32_t>(Tracer::instance().start(period_ms, duration_ms, period_ms, nullptr));
  });
}

RW_EXPORT int64_t rw_tracer_collect(char *json, size_t capacity) {
  return guarded<int64_t>(0, [&]() -> int64_t {
    auto text = Tracer::instance().collect();
    if (!text.has_value()) return 0;
    const int64_t length = copy_out(*text, json, capacity);
    if (length < 0) Tracer::instance().put_back(std::move(*text));
    return length;
  });
}

RW_EXPORT int32_t rw_tracer_pause() {
  return guarded<int32_t>(RW_FAILED, [] { return static_cast<int32_t>(Tracer::instance().pause()); });
}

RW_EXPORT int32_t rw_tracer_resume() {
  return guarded<int32_t>(RW_FAILED, [] { return static_cast<int32_t>(Tracer::instance().resume()); });
}

RW_EXPORT int32_t rw_tracer_stop() {
  return guarded<int32_t>(RW_FAILED, [] { return static_cast<int32_t>(Tracer::instance().stop()); });
}

RW_EXPORT void rw_tracer_mark_step(uint32_t kind, uint64_t unix_ns) { Tracer::marks().mark(kind, unix_ns); }

RW_EXPORT volatile uint64_t *rw_tracer_mark_slots(size_t *count) {
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  *count = StepMarks::kShared;
  return reinterpret_cast<volatile uint64_t *>(Tracer::marks().shared());
}

RW_EXPORT const volatile uint32_t *rw_tracer_live_flag() {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<const volatile uint32_t *>(&Tracer::live());
}

RW_EXPORT int64_t rw_tracer_neighbours(char *json, size_t capacity) {
  return guarded<int64_t>(0, [&] {
    JsonWriter writer;
    writer.begin_object().begin_array("tools");
    for (const Neighbour &tool : find_neighbours(own_library_path())) {
      writer.begin_object().field("tool", tool.tool).field("evidence", tool.evidence);
      writer.field("yields", tool.yields).end_object();
    }
    return copy_out(writer.end_array().end_object().text(), json, capacity);
  });
}

RW_EXPORT int64_t rw_tracer_version_notes(uint32_t cupti, char *json, size_t capacity) {
  return guarded<int64_t>(0, [&] {
    JsonWriter writer;
    writer.begin_object().begin_array("notes");
    for (const KnownPair &pair : match_pairs(cupti)) {
      writer.begin_object().field("effect", name_of(pair.effect)).field("text", pair.text);
      writer.field("source", pair.source).end_object();
    }
    return copy_out(writer.end_array().end_object().text(), json, capacity);
  });
}

RW_EXPORT int64_t rw_tracer_status(char *json, size_t capacity) {
  return guarded<int64_t>(0, [&] { return copy_out(Tracer::instance().status_json(), json, capacity); });
}

RW_EXPORT int64_t rw_tracer_calibrate(int32_t device, int32_t trace, char *json, size_t capacity) {
  return guarded<int64_t>(0, [&] {
    NullKernels kernels;
    LaunchCosts costs;
    WindowReport report;
    std::string why = kernels.prepare(device);
    if (why.empty()) why = kernels.measure(costs);
    if (why.empty() && trace != 0) why = traced_replays(kernels, report);
    return copy_out(calibration_json(why, costs, report), json, capacity);
  });
}

RW_EXPORT int32_t rw_tracer_enable_graph_level(char *reason, size_t capacity) {
  return guarded<int32_t>(RW_FAILED, [&] {
    std::string why;
    if (cuda_is_initialised())
      why = "CUDA is initialised: a graph may exist, and replaying it under graph-level tracing crashes (measured)";
    else
      Tracer::instance().enable_graph_level(why);
    copy_message(why, reason, capacity);
    if (why.empty()) watch_process();
    return why.empty() ? RW_OK : RW_REFUSED;
  });
}

RW_EXPORT int64_t rw_tracer_histogram(const int64_t *values, size_t count, char *json, size_t capacity) {
  return guarded<int64_t>(0, [&] {
    Histogram histogram;
    for (size_t i = 0; i < count; ++i) histogram.add(values[i]);
    JsonWriter writer;
    writer.begin_object();
    write_histogram(writer, "histogram", histogram);
    return copy_out(writer.end_object().text(), json, capacity);
  });
}

RW_EXPORT void rw_tracer_leave_to_probe() { leave_to_probe(); }

RW_EXPORT int InitializeInjection() {
  guarded<int>(0, [] {
    begin_injection();
    return 0;
  });
  return 1;
}
