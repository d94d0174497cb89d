// Finds where steps begin from the order of launches alone.
#pragma once

#include <vector>

#include "device_records.h"
#include "step_marks.h"

namespace replaywatch::tracer {

// Starts of the steps, from the launch that returns once a step; empty when no launch returns regularly.
//
// A token is an eager kernel (by name) or a replay (by graph). Tokens inside a layer return many times a step; the
// rarest tokens that return after a constant number of launches return once a step. One rare token may be a coincidence
// (work done every tenth step), so at least two must agree on their count, unless there are only two kinds in all. Bad
// at: steps whose kernels change each time; those stay without steps.
std::vector<StepMark> pattern_starts(const DeviceRecords &work);

}  // namespace replaywatch::tracer
