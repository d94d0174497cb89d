// The records of one device in one window, sorted by start, and the replays that they form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "record_store.h"

namespace replaywatch::tracer {

// A window: enabled, disabled, and flushed after the last record was delivered. In Unix time once it was read.
struct WindowEdges {
  uint64_t enabled_ns = 0;
  uint64_t disabled_ns = 0;
  uint64_t flushed_ns = 0;
};

// Records that were not used, by why.
struct Drops {
  uint64_t zero = 0;        // start or end of 0: CUPTI had no stamp (M11, M21)
  uint64_t late = 0;        // of an earlier window
  uint64_t impossible = 0;  // stamps that the other records contradict (M21)
  uint64_t edge = 0;        // of the first or last replay of a stream, and what ran beside them
  uint64_t damaged = 0;     // of replays that lost too many records

  uint64_t total() const { return zero + late + impossible + edge + damaged; }
};

struct Interval {
  uint64_t start_ns;
  uint64_t end_ns;
};

// One launch of one executable graph. The interval spans its usable records; empty when it has none.
struct Replay {
  uint32_t graph = 0;
  uint32_t stream = 0;
  uint64_t start_ns = UINT64_MAX;
  uint64_t end_ns = 0;
  uint32_t records = 0;  // as delivered
  uint32_t usable = 0;   // without those of impossible stamps
  bool edge = false;
  bool damaged = false;

  bool kept() const { return !edge && !damaged; }
  bool empty() const { return start_ns >= end_ns; }
};

constexpr uint32_t kNoReplay = UINT32_MAX;

struct DeviceRecords {
  Record *first = nullptr;  // sorted by start
  size_t count = 0;
  std::vector<uint32_t> replay_of;  // by record; kNoReplay for eager work
  std::vector<Replay> replays;      // sorted by start
  std::vector<Interval> holes;      // stretches of dropped replays, disjoint and sorted
  bool correlation_trusted = true;
  Drops drops;

  Record &operator[](size_t i) const { return first[i]; }
};

// Groups usable graph records into replays: by correlation id, or, where that repeats a node (wrong ids before
// CUPTI 13.1 update 1), by the reappearance of the graph's first node.
void group_replays(DeviceRecords &work);

// Marks the records that cannot be used, drops the first and last replay of each stream and damaged ones, and fills
// `replays`, `holes` and `drops`.
void drop_unusable(DeviceRecords &work, const WindowEdges &edges);

}  // namespace replaywatch::tracer
