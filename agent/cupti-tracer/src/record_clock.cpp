#include "record_clock.h"

#include <time.h>

#include <cmath>

#include "cupti_records.h"

namespace replaywatch::tracer {
namespace {

constexpr double kClocksDifferNs = 1e9;

uint64_t now_ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

double between(uint64_t from, uint64_t to) { return static_cast<double>(static_cast<int64_t>(to - from)); }

}  // namespace

uint64_t unix_now_ns() { return now_ns(CLOCK_REALTIME); }

uint64_t steady_now_ns() { return now_ns(CLOCK_MONOTONIC); }

ClockReading read_clocks(const CuptiApi &api) {
  ClockReading reading;
  const uint64_t before_ns = steady_now_ns();
  if (api.get_timestamp(&reading.cupti) != kCuptiSuccess) reading.cupti = 0;
  reading.unix_ns = unix_now_ns();
  reading.steady_ns = before_ns + (steady_now_ns() - before_ns) / 2;
  if (reading.cupti == 0) reading.cupti = reading.unix_ns;
  return reading;
}

RecordClock::RecordClock(const ClockReading &begin, const ClockReading &end) : begin_(begin) {
  if (std::abs(between(begin.cupti, begin.unix_ns)) < kClocksDifferNs) return;
  const double ticks = between(begin.cupti, end.cupti), passed_ns = between(begin.steady_ns, end.steady_ns);
  if (ticks > 0 && passed_ns > 0) rate_ = ticks / passed_ns;
}

uint64_t RecordClock::to_unix_ns(uint64_t stamp) const {
  if (stamp == 0 || is_unix()) return stamp;
  const double since_ns = between(begin_.cupti, stamp) / rate_;
  const auto unix_ns = static_cast<int64_t>(begin_.unix_ns) + static_cast<int64_t>(std::llround(since_ns));
  return unix_ns > 0 ? static_cast<uint64_t>(unix_ns) : 1;
}

}  // namespace replaywatch::tracer
