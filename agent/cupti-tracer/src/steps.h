// Where the steps of a window begin and end.
#pragma once

#include <cstdint>
#include <vector>

#include "device_records.h"
#include "step_marks.h"

namespace replaywatch::tracer {

enum class StepSource { kNone, kMarks, kPattern, kReplays };
const char *name_of(StepSource source);

struct Step {
  uint64_t start_ns;
  uint64_t end_ns;
  StepKind kind;
  bool clean;

  uint64_t period_ns() const { return end_ns - start_ns; }
};

struct Steps {
  StepSource source = StepSource::kNone;
  std::vector<Step> all;  // sorted, disjoint
};

// Steps from marks when at least three lie in the window (on CUPTI's clock); else from the launch pattern: the work
// that comes once a step is the rarest that returns after a constant number of launches; else one step for each replay
// where replays carry nearly all kernels; else none. Steps much longer than the others, or that touch a dropped replay,
// are not clean.
//
// Marks are host times and work runs later on the device: sums over a window are right while the queue depth is steady.
Steps find_steps(const DeviceRecords &work, const std::vector<StepMark> &marks);

// Length from which an idle stretch is a pause of the service: two clean steps, 50 ms where no step is known. The same
// rule as for recorded traces.
uint64_t long_idle_ns(const Steps &steps);

}  // namespace replaywatch::tracer
