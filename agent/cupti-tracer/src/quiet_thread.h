// A thread that the application does not notice.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace replaywatch::tracer {

// Takes none of the application's signals; bears a name.
std::thread start_quiet_thread(std::function<void()> body);

// Processor time of the calling thread.
uint64_t thread_cpu_ns();

}  // namespace replaywatch::tracer
