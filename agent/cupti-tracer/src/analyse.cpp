#include <algorithm>
#include <map>

#include "busy.h"
#include "clean_steps.h"
#include "device_report.h"

namespace replaywatch::tracer {
namespace {

constexpr size_t kMostStreams = 8;
constexpr uint64_t kLongReplayGapNs = 50'000'000;  // graph level: a longer gap is waiting for requests

void fill_steps(WindowTiming &timing, const Steps &steps) {
  for (const Step &step : steps.all) {
    if (!step.clean) continue;
    timing.step_period.add(static_cast<int64_t>(step.period_ns()));
    if (step.kind != kStepUnknown) timing.step_by_kind[step.kind].add(static_cast<int64_t>(step.period_ns()));
  }
}

void fill_replays(DeviceReport &report, const DeviceRecords &work) {
  report.replays = work.replays.size();
  report.correlation_trusted = work.correlation_trusted;
  for (const Replay &replay : work.replays)
    if (replay.kept() && !replay.empty())
      report.timing.replay.add(static_cast<int64_t>(replay.end_ns - replay.start_ns));
}

void fill_totals(TracedWork &sum, const DeviceRecords &work, const BusyTime &time) {
  sum.total_span_ns = length_ns(time.stretches);
  sum.total_busy_ns = length_ns(time.busy);
  for (size_t i = 0; i < work.count; ++i) {
    if (work[i].flags & kDropped || !work[i].is_kernel()) continue;
    ++sum.total_kernels;
    sum.total_graph_kernels += work[i].in_graph();
  }
}

void fill_streams(DeviceReport &report, const DeviceRecords &work, uint64_t long_idle) {
  struct Chain {
    StreamWork sum;
    uint64_t busy_until = 0;
  };
  std::map<uint32_t, Chain> by_stream;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (r.flags & kDropped) continue;
    Chain &chain = by_stream[r.stream];
    const uint64_t gap = chain.busy_until != 0 && r.start_ns > chain.busy_until ? r.start_ns - chain.busy_until : 0;
    if (gap <= long_idle && !r.in_graph()) chain.sum.gap_ns += gap;
    chain.busy_until = std::max(chain.busy_until, r.end_ns);
    if (!r.is_kernel()) continue;
    ++chain.sum.kernels;
    chain.sum.kernel_ns += r.duration_ns();
  }
  for (auto &[stream, chain] : by_stream) {
    chain.sum.stream = stream;
    report.streams.push_back(chain.sum);
  }
  std::stable_sort(report.streams.begin(), report.streams.end(),
                   [](const StreamWork &a, const StreamWork &b) { return a.kernels > b.kernels; });
  if (report.streams.size() > kMostStreams) report.streams.resize(kMostStreams);
}

}  // namespace

DeviceReport analyse_kernels(DeviceRecords &work, const WindowEdges &edges, const std::vector<StepMark> &marks) {
  DeviceReport report;
  drop_unusable(work, edges);
  const Steps steps = find_steps(work, marks);
  const BusyTime time = sweep(work, long_idle_ns(steps));
  report.steps_from = steps.source;
  report.drops = work.drops;
  fill_replays(report, work);
  fill_steps(report.timing, steps);
  fill_totals(report.traced, work, time);
  fill_streams(report, work, long_idle_ns(steps));
  sum_clean_steps(report, work, time, steps);
  return report;
}

DeviceReport analyse_graph_level(DeviceRecords &work, const WindowEdges &edges) {
  DeviceReport report;
  report.graph_level = true;
  uint64_t last_end_ns = 0;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (r.kind != kRecordGraph) continue;
    ++report.replays;
    if (r.start_ns == 0 || r.end_ns == 0) {
      ++report.drops.zero;
    } else if (r.end_ns < r.start_ns || r.end_ns > edges.flushed_ns + kLongReplayGapNs) {
      ++report.drops.impossible;
    } else {
      report.timing.replay.add(static_cast<int64_t>(r.duration_ns()));
      const bool gap = last_end_ns != 0 && r.start_ns >= last_end_ns && r.start_ns - last_end_ns <= kLongReplayGapNs;
      if (gap) report.timing.replay_gap.add(static_cast<int64_t>(r.start_ns - last_end_ns));
      last_end_ns = std::max(last_end_ns, r.end_ns);
    }
  }
  return report;
}

std::vector<DeviceReport> analyse(Record *first, size_t count, const WindowEdges &edges,
                                  const std::vector<StepMark> &marks) {
  std::sort(first, first + count, [](const Record &a, const Record &b) {
    if (a.device != b.device) return a.device < b.device;
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns < b.end_ns;
  });
  std::vector<DeviceReport> reports;
  for (size_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && first[end].device == first[begin].device) ++end;
    DeviceRecords work;
    work.first = first + begin;
    work.count = end - begin;
    const bool graph_level =
        std::any_of(work.first, work.first + work.count, [](const Record &r) { return r.kind == kRecordGraph; });
    reports.push_back(graph_level ? analyse_graph_level(work, edges) : analyse_kernels(work, edges, marks));
    reports.back().device = first[begin].device;
    reports.back().last_start_ns = first[end - 1].start_ns;
  }
  return reports;
}

}  // namespace replaywatch::tracer
