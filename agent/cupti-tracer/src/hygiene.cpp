// What a window must not believe: stamps of 0, records of earlier windows, durations that other records contradict, and
// replays at its edges. Source: measurements M11, M20 and M21 (eager records are all valid; 1.5 to 9 % of the records
// of replays are not, about half a replay a window).
#include <algorithm>
#include <unordered_map>

#include "device_records.h"

namespace replaywatch::tracer {
namespace {

constexpr uint64_t kClockSlackNs = 1'000'000;  // CUPTI interpolates device time; stamps of two clocks meet this well
constexpr uint64_t kOverlapSlackNs = 10'000;   // dependent launches may begin a little before their predecessor ends
constexpr uint64_t kSuspectNs = 20'000;        // a duration of 4 medians and this much more is checked
constexpr uint64_t kLongUnknownNs = 1'000'000;
constexpr size_t kEnoughForMedian = 3;
constexpr double kUsableShare = 0.9;

void drop(Record &record, uint64_t &counter) {
  record.flags |= kDropped;
  ++counter;
}

// Longest believable duration by record, from the other replays of the same node; 0 where there are too few.
std::vector<uint64_t> believable_durations(const DeviceRecords &work) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < work.count; ++i)
    if (work.replay_of[i] != kNoReplay && !(work[i].flags & kDropped)) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Record &x = work[a], &y = work[b];
    if (x.graph != y.graph) return x.graph < y.graph;
    if (x.graph_node != y.graph_node) return x.graph_node < y.graph_node;
    return x.duration_ns() < y.duration_ns();
  });
  std::vector<uint64_t> longest(work.count, 0);
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const Record &node = work[order[begin]];
    while (end < order.size() && work[order[end]].graph == node.graph && work[order[end]].graph_node == node.graph_node)
      ++end;
    if (end - begin < kEnoughForMedian) continue;
    const uint64_t median = work[order[begin + (end - begin) / 2]].duration_ns();
    for (size_t k = begin; k < end; ++k) longest[order[k]] = 4 * median + kSuspectNs;
  }
  return longest;
}

// Drops graph records that last far longer than their node usually does while later work of their stream runs inside
// them; work of one stream is ordered. A long record that nothing contradicts stays: collectives do wait.
void drop_contradicted(DeviceRecords &work) {
  const std::vector<uint64_t> longest = believable_durations(work);
  std::unordered_map<uint32_t, std::pair<uint64_t, uint64_t>>
      next;  // by stream: start of the next record, and after it
  for (size_t i = work.count; i-- > 0;) {
    Record &r = work[i];
    if (r.flags & kDropped) continue;
    auto &[first, second] = next.try_emplace(r.stream, UINT64_MAX, UINT64_MAX).first->second;
    if (work.replay_of[i] != kNoReplay) {
      const bool long_for_node = longest[i] != 0 && r.duration_ns() > longest[i];
      const bool long_unknown = longest[i] == 0 && r.duration_ns() > kLongUnknownNs;
      if ((long_for_node && first < r.end_ns - kOverlapSlackNs) || (long_unknown && second < r.end_ns)) {
        drop(r, work.drops.impossible);
        continue;
      }
    }
    second = first;
    first = r.start_ns;
  }
}

// Intervals of the replays, from what is left of them.
void span_replays(DeviceRecords &work) {
  for (size_t i = 0; i < work.count; ++i) {
    if (work.replay_of[i] == kNoReplay || work[i].flags & kDropped) continue;
    Replay &replay = work.replays[work.replay_of[i]];
    if (work[i].start_ns < replay.start_ns) replay.stream = work[i].stream;
    replay.start_ns = std::min(replay.start_ns, work[i].start_ns);
    replay.end_ns = std::max(replay.end_ns, work[i].end_ns);
    ++replay.usable;
  }
}

void sort_replays(DeviceRecords &work) {
  std::vector<uint32_t> order(work.replays.size()), rank(work.replays.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return work.replays[a].start_ns < work.replays[b].start_ns; });
  std::vector<Replay> sorted;
  sorted.reserve(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    rank[order[i]] = i;
    sorted.push_back(work.replays[order[i]]);
  }
  work.replays.swap(sorted);
  for (uint32_t &replay : work.replay_of)
    if (replay != kNoReplay) replay = rank[replay];
}

void mark_edges_and_damage(DeviceRecords &work) {
  std::unordered_map<uint32_t, uint32_t> full_size;
  std::unordered_map<uint32_t, Replay *> last;
  for (Replay &replay : work.replays) {
    uint32_t &size = full_size[replay.graph];
    size = std::max(size, replay.records);
    if (last.count(replay.stream) == 0) replay.edge = true;
    last[replay.stream] = &replay;
  }
  for (auto &[stream, replay] : last) replay->edge = true;
  for (Replay &replay : work.replays) {
    replay.damaged = !replay.edge && replay.usable < kUsableShare * full_size[replay.graph];
  }
}

// Stretches of the dropped replays, merged.
void fill_holes(DeviceRecords &work) {
  for (const Replay &replay : work.replays) {
    if (replay.kept() || replay.empty()) continue;
    if (!work.holes.empty() && replay.start_ns <= work.holes.back().end_ns)
      work.holes.back().end_ns = std::max(work.holes.back().end_ns, replay.end_ns);
    else
      work.holes.push_back({replay.start_ns, replay.end_ns});
  }
}

void drop_in_holes(DeviceRecords &work) {
  size_t hole = 0;
  for (size_t i = 0; i < work.count; ++i) {
    Record &r = work[i];
    if (r.flags & kDropped) continue;
    const uint32_t replay = work.replay_of[i];
    if (replay != kNoReplay && !work.replays[replay].kept()) {
      drop(r, work.replays[replay].edge ? work.drops.edge : work.drops.damaged);
      continue;
    }
    while (hole < work.holes.size() && work.holes[hole].end_ns <= r.start_ns) ++hole;
    if (hole < work.holes.size() && work.holes[hole].start_ns < r.end_ns) drop(r, work.drops.edge);
  }
}

}  // namespace

void drop_unusable(DeviceRecords &work, const WindowEdges &edges) {
  const uint64_t longest_ns = edges.flushed_ns - edges.enabled_ns + kClockSlackNs;
  for (size_t i = 0; i < work.count; ++i) {
    Record &r = work[i];
    if (r.start_ns == 0 || r.end_ns == 0)
      drop(r, work.drops.zero);
    else if (r.end_ns + kClockSlackNs < edges.enabled_ns)
      drop(r, work.drops.late);
    else if (r.end_ns < r.start_ns || r.duration_ns() > longest_ns || r.end_ns > edges.flushed_ns + kClockSlackNs)
      drop(r, work.drops.impossible);
  }
  group_replays(work);
  drop_contradicted(work);
  span_replays(work);
  sort_replays(work);
  mark_edges_and_damage(work);
  fill_holes(work);
  drop_in_holes(work);
}

}  // namespace replaywatch::tracer
