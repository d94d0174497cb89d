// Turns the stamps of CUPTI's records into Unix time. By default they are that already; a client may give CUPTI a clock of
// its own (cuptiActivityRegisterTimestampCallback), for good. Kineto gives it the processor's tick counter, so after the
// first torch.profiler of a process every stamp counts ticks: on a host of 2.1 GHz durations were 2.1 times too long
// (H200, driver 580.159.04, CUPTI 13.0, torch 2.11).
#pragma once

#include <cstdint>

#include "cupti_api.h"

namespace replaywatch::tracer {

// CLOCK_REALTIME, which is CUPTI's default clock on Linux, and CLOCK_MONOTONIC.
uint64_t unix_now_ns();
uint64_t steady_now_ns();

// One moment on three clocks.
struct ClockReading {
  uint64_t cupti = 0;
  uint64_t unix_ns = 0;
  uint64_t steady_ns = 0;
};
ClockReading read_clocks(const CuptiApi &api);

class RecordClock {
 public:
  // From readings at both ends of a window. The longer the window, the better the rate.
  RecordClock(const ClockReading &begin, const ClockReading &end);

  bool is_unix() const { return rate_ == 1.0; }
  // Ticks per nanosecond; 1 where stamps are Unix time.
  double rate() const { return rate_; }
  // Unix time of a stamp; 0, which means that there is none, stays 0.
  uint64_t to_unix_ns(uint64_t stamp) const;

 private:
  ClockReading begin_;
  double rate_ = 1.0;
};

}  // namespace replaywatch::tracer
