// Sums over the clean steps of one device.
#pragma once

#include "busy.h"
#include "device_report.h"

namespace replaywatch::tracer {

// Adds to `report` all that is summed over clean steps; over the whole stretches when there are no steps.
void sum_clean_steps(DeviceReport &report, const DeviceRecords &work, const BusyTime &time, const Steps &steps);

}  // namespace replaywatch::tracer
