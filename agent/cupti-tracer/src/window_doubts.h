// What a window says about itself: whether somebody else had CUPTI meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "step_marks.h"
#include "window_report.h"

namespace replaywatch::tracer {

// Adds the reasons. Who holds CUPTI's callbacks cannot be asked, so it is inferred: steps ran and no record came, or
// records end long before the steps do, or records and buffers arrive that were not asked for here.
void add_doubts(WindowReport &report, const std::vector<StepMark> &marks, uint64_t buffers_requested);

}  // namespace replaywatch::tracer
