// The device as it was: busy or idle, whatever ran side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "device_records.h"

namespace replaywatch::tracer {

struct Gap {
  uint64_t start_ns;
  uint64_t end_ns;
  uint32_t left_replay;   // kNoReplay: eager work ended before the gap
  uint32_t right_replay;  // kNoReplay: eager work begins after it

  uint64_t length_ns() const { return end_ns - start_ns; }
};

struct BusyTime {
  std::vector<Interval> busy;        // union of all usable work
  std::vector<Interval> graph_busy;  // union of work in graphs
  std::vector<Gap> gaps;             // between busy stretches, without those that were cut
  std::vector<Interval> stretches;   // from first to last work, without long idle stretches and holes
};

// Gaps longer than `long_idle_ns` are waiting for requests, not launch overhead: they become cuts.
BusyTime sweep(const DeviceRecords &work, uint64_t long_idle_ns);

// Length of the common part of two sorted lists of disjoint intervals.
uint64_t overlap_ns(const std::vector<Interval> &a, const std::vector<Interval> &b);

uint64_t length_ns(const std::vector<Interval> &intervals);

}  // namespace replaywatch::tracer
