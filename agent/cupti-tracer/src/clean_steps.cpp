#include "clean_steps.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace replaywatch::tracer {
namespace {

std::vector<Interval> clean_intervals(const Steps &steps, const BusyTime &time) {
  if (steps.all.empty()) return time.stretches;
  std::vector<Interval> clean;
  for (const Step &step : steps.all) {
    if (!step.clean) continue;
    if (!clean.empty() && clean.back().end_ns == step.start_ns)
      clean.back().end_ns = step.end_ns;
    else
      clean.push_back({step.start_ns, step.end_ns});
  }
  return clean;
}

// Answers for ascending times whether they lie in one of some sorted intervals.
class Within {
 public:
  Within(const std::vector<Interval> &intervals, bool closed) : intervals_(intervals), closed_(closed) {}
  bool operator()(uint64_t t) {
    while (at_ < intervals_.size() && (closed_ ? intervals_[at_].end_ns < t : intervals_[at_].end_ns <= t)) ++at_;
    return at_ < intervals_.size() && intervals_[at_].start_ns <= t;
  }

 private:
  const std::vector<Interval> &intervals_;
  bool closed_;
  size_t at_ = 0;
};

// Whether eager work at ascending times lies between the end of one replay and the start of the next.
class BetweenReplays {
 public:
  explicit BetweenReplays(const std::vector<Replay> &replays) : replays_(replays) {}
  bool operator()(const Record &r) {
    while (next_ < replays_.size() && replays_[next_].start_ns <= r.start_ns) {
      if (!replays_[next_].empty()) last_end_ns_ = std::max(last_end_ns_, replays_[next_].end_ns);
      ++next_;
    }
    const bool replay_follows = next_ < replays_.size() && !replays_[next_].empty();
    return last_end_ns_ != 0 && replay_follows && r.start_ns >= last_end_ns_;
  }

 private:
  const std::vector<Replay> &replays_;
  size_t next_ = 0;
  uint64_t last_end_ns_ = 0;
};

void add_kernel(TracedWork &sum, const Record &r) {
  sum.kernel_ns += r.duration_ns();
  (r.in_graph() ? sum.graph_kernels : sum.eager_kernels) += 1;
  (r.in_graph() ? sum.graph_kernel_ns : sum.eager_kernel_ns) += r.duration_ns();
}

void add_copy(TracedWork &sum, const Record &r) {
  ++sum.copies;
  sum.copy_ns += r.duration_ns();
}

void add_input_copy(TracedWork &sum, const Record &r) {
  ++sum.input_copies;
  sum.input_copy_ns += r.duration_ns();
  if (!r.is_kernel()) sum.input_copy_bytes += r.detail;
}

void sum_records(TracedWork &sum, const DeviceRecords &work, const std::vector<Interval> &clean, bool closed) {
  Within inside(clean, closed);
  BetweenReplays between(work.replays);
  struct Chain {
    uint64_t kernels = 0, kernel_ns = 0;
  };
  std::unordered_map<uint32_t, Chain> chains;
  std::unordered_set<uint32_t> replays;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (r.flags & kDropped) continue;
    const bool for_replay = !r.in_graph() && r.flags & kIsInputCopy && between(r);
    if (!inside(r.start_ns)) continue;
    const uint32_t replay = work.replay_of[i];
    if (replay != kNoReplay) replays.insert(replay);
    if (for_replay) add_input_copy(sum, r);
    if (!r.is_kernel()) {
      add_copy(sum, r);
      continue;
    }
    add_kernel(sum, r);
    Chain &chain = chains[r.stream];
    ++chain.kernels;
    chain.kernel_ns += r.duration_ns();
  }
  Chain busiest;
  for (const auto &[stream, chain] : chains)
    if (chain.kernel_ns > busiest.kernel_ns) busiest = chain;
  sum.chain_kernels = busiest.kernels;
  sum.launches = sum.eager_kernels;
  sum.graph_launches = replays.size();
  if (sum.graph_kernels < sum.eager_kernels) sum.input_copies = sum.input_copy_ns = sum.input_copy_bytes = 0;
}

// Idle time of the device, by what it separates: nodes of one replay, a replay and what follows it, eager launches.
void sum_gaps(DeviceReport &report, const BusyTime &time, const Steps &steps) {
  size_t at = 0;
  for (const Gap &gap : time.gaps) {
    while (at < steps.all.size() && steps.all[at].end_ns <= gap.start_ns) ++at;
    const Step *step = at < steps.all.size() && steps.all[at].start_ns <= gap.start_ns ? &steps.all[at] : nullptr;
    const bool stepless = steps.all.empty();
    if (!stepless && (step == nullptr || !step->clean || gap.end_ns > step->end_ns)) continue;
    const auto length = static_cast<int64_t>(gap.length_ns());
    if (gap.left_replay == kNoReplay) {
      if (stepless || gap.end_ns < step->end_ns) report.timing.launch_gap.add(length);
    } else if (gap.left_replay == gap.right_replay) {
      report.traced.in_graph_gap_ns += gap.length_ns();
      ++report.traced.in_graph_gaps;
    } else {
      report.traced.replay_gap_ns += gap.length_ns();
      report.timing.replay_gap.add(length);
    }
  }
}

}  // namespace

void sum_clean_steps(DeviceReport &report, const DeviceRecords &work, const BusyTime &time, const Steps &steps) {
  TracedWork &sum = report.traced;
  for (const Step &step : steps.all) {
    const auto period = static_cast<double>(step.period_ns());
    ++(step.clean ? sum.steps : sum.skipped_steps);
    if (step.clean) sum.span_sq_ns2 += period * period;
  }
  const std::vector<Interval> clean = clean_intervals(steps, time);
  sum.span_ns = length_ns(clean);
  sum.busy_ns = overlap_ns(time.busy, clean);
  sum.graph_busy_ns = overlap_ns(time.graph_busy, clean);
  sum_records(sum, work, clean, steps.all.empty());
  sum_gaps(report, time, steps);
}

}  // namespace replaywatch::tracer
