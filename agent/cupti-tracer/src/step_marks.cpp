#include "step_marks.h"

#include <algorithm>

namespace replaywatch::tracer {

std::vector<StepMark> StepMarks::between(uint64_t from_ns, uint64_t to_ns) const {
  std::vector<StepMark> found;
  for (const auto &slot : ring_) {
    const uint64_t value = slot.load(std::memory_order_relaxed);
    const uint64_t unix_ns = value & ~uint64_t{3};
    if (unix_ns < from_ns || unix_ns > to_ns || unix_ns == 0) continue;
    found.push_back({unix_ns, static_cast<StepKind>(value & 3)});
  }
  std::sort(found.begin(), found.end(), [](const StepMark &a, const StepMark &b) { return a.unix_ns < b.unix_ns; });
  return found;
}

}  // namespace replaywatch::tracer
