#include "report_json.h"

namespace replaywatch::tracer {
namespace {

void write_if_any(JsonWriter &json, std::string_view key, const Histogram &histogram) {
  if (histogram.count() != 0) write_histogram(json, key, histogram);
}

void write_drops(JsonWriter &json, const Drops &drops) {
  json.begin_object("dropped");
  json.field("zero", drops.zero).field("late", drops.late).field("impossible", drops.impossible);
  json.field("edge", drops.edge).field("damaged", drops.damaged);
  json.end_object();
}

}  // namespace

void write_histogram(JsonWriter &json, std::string_view key, const Histogram &histogram) {
  json.begin_object(key).field("n", histogram.count()).field("s", histogram.sum());
  json.begin_object("b");
  for (size_t i = 0; i < Histogram::kBuckets; ++i)
    if (histogram.bucket(i) != 0) json.field(std::to_string(i), histogram.bucket(i));
  json.end_object();
  json.count("z", histogram.zero());
  json.end_object();
}

void write_traced(JsonWriter &json, const DeviceReport &report, uint64_t dropped_elsewhere) {
  const TracedWork &work = report.traced;
  json.begin_object("traced").field("method", "cupti");
  json.count("steps", work.steps).count("skipped_steps", work.skipped_steps).count("span_ns", work.span_ns);
  if (work.span_sq_ns2 > 0) json.field("span_sq_ns2", work.span_sq_ns2);
  json.count("busy_ns", work.busy_ns).count("kernel_ns", work.kernel_ns);
  json.count("graph_kernels", work.graph_kernels).count("eager_kernels", work.eager_kernels);
  json.count("graph_kernel_ns", work.graph_kernel_ns).count("eager_kernel_ns", work.eager_kernel_ns);
  json.count("chain_kernels", work.chain_kernels).count("graph_busy_ns", work.graph_busy_ns);
  json.count("launches", work.launches).count("graph_launches", work.graph_launches);
  json.count("copies", work.copies).count("copy_ns", work.copy_ns);
  json.count("input_copies", work.input_copies).count("input_copy_ns", work.input_copy_ns);
  json.count("input_copy_bytes", work.input_copy_bytes).count("replay_gap_ns", work.replay_gap_ns);
  if (work.in_graph_gaps != 0)
    json.field("in_graph_gap_ns", work.in_graph_gap_ns).field("in_graph_gaps", work.in_graph_gaps);
  json.count("dropped_records", report.drops.total() + dropped_elsewhere);
  json.count("total_span_ns", work.total_span_ns).count("total_busy_ns", work.total_busy_ns);
  json.count("total_kernels", work.total_kernels).count("total_graph_kernels", work.total_graph_kernels);
  json.end_object();
}

void write_timing(JsonWriter &json, const WindowTiming &timing) {
  json.begin_object("timing");
  write_if_any(json, "replay", timing.replay);
  write_if_any(json, "replay_gap", timing.replay_gap);
  write_if_any(json, "launch_gap", timing.launch_gap);
  write_if_any(json, "step_period", timing.step_period);
  if (timing.step_by_kind[kStepFull].count() + timing.step_by_kind[kStepPiecewise].count() +
          timing.step_by_kind[kStepEager].count() !=
      0) {
    json.begin_object("step_by_mode");
    write_if_any(json, "full", timing.step_by_kind[kStepFull]);
    write_if_any(json, "piecewise", timing.step_by_kind[kStepPiecewise]);
    write_if_any(json, "eager", timing.step_by_kind[kStepEager]);
    json.end_object();
  }
  json.end_object();
}

void write_device(JsonWriter &json, const DeviceReport &report, uint64_t dropped_elsewhere) {
  json.begin_object().field("device", static_cast<uint64_t>(report.device));
  json.field("graph_level", report.graph_level).field("replays", report.replays);
  json.field("steps_from", name_of(report.steps_from)).field("correlation_trusted", report.correlation_trusted);
  if (!report.graph_level) write_traced(json, report, dropped_elsewhere);
  write_timing(json, report.timing);
  write_drops(json, report.drops);
  json.begin_array("streams");
  for (const StreamWork &stream : report.streams) {
    json.begin_object().field("stream", stream.stream).field("kernels", stream.kernels);
    json.field("kernel_ns", stream.kernel_ns).field("gap_ns", stream.gap_ns).end_object();
  }
  json.end_array().end_object();
}

}  // namespace replaywatch::tracer
