#include "steps.h"

#include <algorithm>

#include "launch_pattern.h"

namespace replaywatch::tracer {
namespace {

constexpr size_t kFewestMarks = 3;
constexpr double kMostlyReplays = 0.8;
constexpr uint64_t kLongStepMedians = 3;
constexpr size_t kFewestPeriods = 3;
constexpr uint64_t kIdleSteps = 2;
constexpr uint64_t kUnknownStepIdleNs = 50'000'000;
constexpr uint64_t kShortestLongIdleNs = 1'000'000;  // less is a slow host between short steps, and no lack of requests

std::vector<Step> between_starts(const std::vector<StepMark> &starts) {
  std::vector<Step> steps;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    if (starts[i].unix_ns == starts[i + 1].unix_ns) continue;
    steps.push_back({starts[i].unix_ns, starts[i + 1].unix_ns, starts[i].kind, true});
  }
  return steps;
}

std::vector<StepMark> replay_starts(const DeviceRecords &work) {
  uint64_t kernels = 0, from_graphs = 0;
  for (size_t i = 0; i < work.count; ++i) {
    if (work[i].flags & kDropped || !work[i].is_kernel()) continue;
    ++kernels;
    from_graphs += work[i].in_graph();
  }
  std::vector<StepMark> starts;
  if (static_cast<double>(from_graphs) < kMostlyReplays * static_cast<double>(kernels)) return starts;
  for (const Replay &replay : work.replays)
    if (!replay.empty()) starts.push_back({replay.start_ns, kStepUnknown});
  return starts;
}

void judge_clean(std::vector<Step> &steps, const std::vector<Interval> &holes) {
  std::vector<uint64_t> periods;
  for (const Step &step : steps) periods.push_back(step.period_ns());
  std::nth_element(periods.begin(), periods.begin() + static_cast<long>(periods.size() / 2), periods.end());
  const uint64_t longest_ns = kLongStepMedians * periods[periods.size() / 2];
  size_t hole = 0;
  for (Step &step : steps) {
    while (hole < holes.size() && holes[hole].end_ns <= step.start_ns) ++hole;
    const bool touched = hole < holes.size() && holes[hole].start_ns < step.end_ns;
    step.clean = !touched && step.period_ns() <= longest_ns;
  }
}

}  // namespace

const char *name_of(StepSource source) {
  switch (source) {
    case StepSource::kMarks: return "marks";
    case StepSource::kPattern: return "pattern";
    case StepSource::kReplays: return "replays";
    case StepSource::kNone: break;
  }
  return "none";
}

uint64_t long_idle_ns(const Steps &steps) {
  std::vector<uint64_t> periods;
  for (const Step &step : steps.all)
    if (step.clean) periods.push_back(step.period_ns());
  if (periods.size() < kFewestPeriods) return kUnknownStepIdleNs;
  std::sort(periods.begin(), periods.end());
  return std::max(kShortestLongIdleNs, kIdleSteps * periods[periods.size() / 2]);
}

Steps find_steps(const DeviceRecords &work, const std::vector<StepMark> &marks) {
  Steps steps;
  if (marks.size() >= kFewestMarks) {
    steps = {StepSource::kMarks, between_starts(marks)};
  } else if (auto starts = pattern_starts(work); starts.size() >= kFewestMarks) {
    steps = {StepSource::kPattern, between_starts(starts)};
  } else if (auto replays = replay_starts(work); replays.size() >= kFewestMarks) {
    steps = {StepSource::kReplays, between_starts(replays)};
  }
  if (steps.all.empty()) return {};
  judge_clean(steps.all, work.holes);
  return steps;
}

}  // namespace replaywatch::tracer
