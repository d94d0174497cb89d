#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "device_records.h"

namespace replaywatch::tracer {
namespace {

uint64_t key_of(uint32_t graph, uint32_t launch) { return static_cast<uint64_t>(graph) << 32 | launch; }

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^ b;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return x ^ x >> 32;
}

// Graphs in which one correlation id holds one node twice: two replays under one id.
std::unordered_set<uint32_t> untrusted_graphs(const DeviceRecords &work) {
  std::unordered_set<uint32_t> untrusted;
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (!r.in_graph() || r.graph_node == 0 || r.flags & kDropped) continue;
    if (!seen.insert(mix(key_of(r.graph, r.correlation), r.graph_node)).second) untrusted.insert(r.graph);
  }
  return untrusted;
}

// Lowest node id by graph: nodes are numbered as they are created, so it is the first of a captured graph.
std::unordered_map<uint32_t, uint64_t> first_nodes(const DeviceRecords &work) {
  std::unordered_map<uint32_t, uint64_t> lowest;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (!r.in_graph() || r.flags & kDropped) continue;
    const auto [at, fresh] = lowest.emplace(r.graph, r.graph_node);
    if (!fresh) at->second = std::min(at->second, r.graph_node);
  }
  return lowest;
}

// Number of the launch that a record belongs to, unique within its graph.
class Launches {
 public:
  explicit Launches(const DeviceRecords &work) : untrusted_(untrusted_graphs(work)) {
    if (!untrusted_.empty()) first_node_ = first_nodes(work);
  }

  uint32_t of(const Record &r) {
    if (untrusted_.count(r.graph) == 0) return r.correlation;
    uint32_t &launch = counted_[r.graph];
    if (r.graph_node == first_node_[r.graph]) ++launch;
    return launch;
  }

  bool trusted() const { return untrusted_.empty(); }

 private:
  std::unordered_set<uint32_t> untrusted_;
  std::unordered_map<uint32_t, uint64_t> first_node_;
  std::unordered_map<uint32_t, uint32_t> counted_;
};

}  // namespace

void group_replays(DeviceRecords &work) {
  Launches launches(work);
  work.correlation_trusted = launches.trusted();
  work.replay_of.assign(work.count, kNoReplay);
  work.replays.clear();
  std::unordered_map<uint64_t, uint32_t> index;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (!r.in_graph() || r.flags & kDropped) continue;
    const auto fresh = static_cast<uint32_t>(work.replays.size());
    const auto [at, added] = index.emplace(key_of(r.graph, launches.of(r)), fresh);
    if (added) {
      work.replays.emplace_back();
      work.replays.back().graph = r.graph;
      work.replays.back().stream = r.stream;
    }
    work.replay_of[i] = at->second;
    ++work.replays[at->second].records;
  }
}

}  // namespace replaywatch::tracer
