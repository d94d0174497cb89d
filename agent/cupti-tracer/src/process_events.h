// The ends and forks of the process.
#pragma once

namespace replaywatch::tracer {

// Registers once: a child of fork forgets the tracer, whose thread it has not; the end of the process ends the thread
// before CUPTI is torn down (handlers run last first, and CUPTI was loaded before).
void watch_process();

}  // namespace replaywatch::tracer
