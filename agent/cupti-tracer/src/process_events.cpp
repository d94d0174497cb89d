#include "process_events.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "tracer.h"

namespace replaywatch::tracer {
namespace {

std::atomic<bool> watching{false};

void at_end() {
  try {
    Tracer::instance().shut_down();
  } catch (...) {
  }
}

void in_child() { Tracer::forget(); }

}  // namespace

void watch_process() {
  if (watching.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, in_child);
  atexit(at_end);
}

}  // namespace replaywatch::tracer
