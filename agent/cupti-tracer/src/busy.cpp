#include "busy.h"

#include <algorithm>

namespace replaywatch::tracer {
namespace {

void extend_union(std::vector<Interval> &busy, const Record &r) {
  if (!busy.empty() && r.start_ns <= busy.back().end_ns)
    busy.back().end_ns = std::max(busy.back().end_ns, r.end_ns);
  else
    busy.push_back({r.start_ns, r.end_ns});
}

bool holds_hole(const std::vector<Interval> &holes, uint64_t start_ns, uint64_t end_ns) {
  const auto at = std::lower_bound(holes.begin(), holes.end(), start_ns,
                                   [](const Interval &hole, uint64_t t) { return hole.end_ns <= t; });
  return at != holes.end() && at->start_ns < end_ns;
}

void close_gap(BusyTime &time, const DeviceRecords &work, const Gap &gap, uint64_t long_idle_ns) {
  const bool hole = holds_hole(work.holes, gap.start_ns, gap.end_ns);
  if (!hole && gap.length_ns() <= long_idle_ns) {
    time.gaps.push_back(gap);
    return;
  }
  time.stretches.back().end_ns = gap.start_ns;
  time.stretches.push_back({gap.end_ns, gap.end_ns});
}

}  // namespace

BusyTime sweep(const DeviceRecords &work, uint64_t long_idle_ns) {
  BusyTime time;
  uint64_t busy_until = 0;
  uint32_t left = kNoReplay;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (r.flags & kDropped) continue;
    if (time.stretches.empty()) time.stretches.push_back({r.start_ns, r.end_ns});
    if (!time.busy.empty() && r.start_ns > busy_until)
      close_gap(time, work, {busy_until, r.start_ns, left, work.replay_of[i]}, long_idle_ns);
    if (time.busy.empty() || r.end_ns >= busy_until) {
      busy_until = r.end_ns;
      left = work.replay_of[i];
    }
    extend_union(time.busy, r);
    if (r.in_graph()) extend_union(time.graph_busy, r);
  }
  if (!time.stretches.empty()) time.stretches.back().end_ns = busy_until;
  return time;
}

uint64_t overlap_ns(const std::vector<Interval> &a, const std::vector<Interval> &b) {
  uint64_t total = 0;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const uint64_t from = std::max(a[i].start_ns, b[k].start_ns), to = std::min(a[i].end_ns, b[k].end_ns);
    if (to > from) total += to - from;
    if (a[i].end_ns < b[k].end_ns)
      ++i;
    else
      ++k;
  }
  return total;
}

uint64_t length_ns(const std::vector<Interval> &intervals) {
  uint64_t total = 0;
  for (const Interval &i : intervals) total += i.end_ns - i.start_ns;
  return total;
}

}  // namespace replaywatch::tracer
