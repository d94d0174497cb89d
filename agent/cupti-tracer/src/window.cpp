#include "window.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "buffer_callbacks.h"
#include "cupti_records.h"
#include "known_pairs.h"
#include "window_doubts.h"

namespace replaywatch::tracer {
namespace {

constexpr uint32_t kPollMs = 5;        // buffers are emptied this often while a window is open
constexpr uint32_t kFlushRounds = 30;  // work that was still queued gets this many polls to finish
constexpr uint32_t kSilentRounds = 2;  // flushes in a row that bring nothing end the wait, once kernels came
// And before any came: eager work of one injected program brought nothing in 8 in three of four windows (H200).
constexpr uint32_t kSilentRoundsBefore = kFlushRounds;
constexpr uint32_t kSilentRoundsInVain = 8;  // where waiting has brought nothing
constexpr uint32_t kForcedInVain = 2;        // so many forced flushes without a kernel end them
constexpr uint32_t kFlushWaitMs = 10;
constexpr uint32_t kFlushForced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr uint32_t kEvictRounds = 4, kEvictWaitMs = 2;  // before a profiler starts, on the thread that starts it

// Time that a call takes, added to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t &sum) : sum_(sum), begin_(steady_now_ns()) {}
  ~Stopwatch() { sum_ += steady_now_ns() - begin_; }
  Stopwatch(const Stopwatch &) = delete;
  Stopwatch &operator=(const Stopwatch &) = delete;

 private:
  uint64_t &sum_;
  uint64_t begin_;
};

// Everything that CUPTI stamped, in Unix time from here on.
void to_unix_time(const RecordClock &clock, WindowReport &report, Record *first, size_t count,
                  std::vector<Record> &calibration) {
  report.clock_rate = clock.rate();
  WindowEdges &edges = report.edges;
  for (uint64_t *edge : {&edges.enabled_ns, &edges.disabled_ns, &edges.flushed_ns}) *edge = clock.to_unix_ns(*edge);
  if (edges.enabled_ns > edges.disabled_ns) edges.enabled_ns = report.start_unix_ns;  // read before the clock changed
  if (clock.is_unix()) return;
  const auto convert = [&](Record &r) {
    r.start_ns = clock.to_unix_ns(r.start_ns);
    r.end_ns = clock.to_unix_ns(r.end_ns);
  };
  std::for_each(first, first + count, convert);
  std::for_each(calibration.begin(), calibration.end(), convert);
}

}  // namespace

CalibrationRecords sum_calibration(std::vector<Record> &records) {
  CalibrationRecords sum;
  std::sort(records.begin(), records.end(), [](const Record &a, const Record &b) { return a.start_ns < b.start_ns; });
  const Record *last = nullptr;
  for (const Record &r : records) {
    if (r.start_ns == 0 || r.end_ns < r.start_ns) continue;
    ++sum.kernels;
    sum.kernel_ns += r.duration_ns();
    if (last != nullptr && r.in_graph() && last->graph == r.graph && last->correlation == r.correlation) {
      ++sum.graph_gaps;
      sum.graph_gap_ns += r.start_ns > last->end_ns ? r.start_ns - last->end_ns : 0;
    }
    last = &r;
  }
  return sum;
}

std::string WindowRunner::open() {
  if (open_) return {};
  if (std::string why = load_cupti(api_); !why.empty()) return why;
  if (std::string why = find_text(api_.version, PairEffect::kRefuse); !why.empty()) return why;
  if (!pool_.map() || !store_.map()) return "the system refuses 37 MB of address space for records";
  serve_buffers_from(&pool_, api_.version);
  open_ = true;
  return {};
}

std::string WindowRunner::enable_graph_level() {
  if (graph_level_) return {};
  if (std::string why = find_text(api_.version, PairEffect::kRefuseGraphLevel); !why.empty()) return why;
  if (const int32_t r = api_.register_callbacks(on_buffer_requested, on_buffer_completed); r != kCuptiSuccess)
    return "CUPTI does not accept buffer callbacks: " + api_.describe(r);
  if (const int32_t r = api_.enable(kGraphTrace); r != kCuptiSuccess)
    return "CUPTI does not trace graphs: " + api_.describe(r);
  graph_level_ = true;
  last_end_ = read_clocks(api_).cupti;
  return {};
}

// Kernels come first and go last. With copies or sets switched on before them, 46 of 166 windows on an H200 (CUPTI 13.0)
// gave no record at all, flushed or forced, in 9 of 14 processes; with kernels first none of 188 in 11 processes
// (tests/gpu/silent.py, docs/data/silent-2026-11-30.json). The calls take 30 us together, so that hardly a copy is missed.
// DRIVER and RUNTIME are left alone for good: switching those off and on ends kernel records of graphs captured meanwhile
// (torch/_cupti/monitor.py).
std::string WindowRunner::enable_kinds() {
  if (const int32_t r = api_.register_callbacks(on_buffer_requested, on_buffer_completed); r != kCuptiSuccess)
    return "CUPTI does not accept buffer callbacks, another client holds it: " + api_.describe(r);
  if (const int32_t r = api_.enable(kConcurrentKernel); r != kCuptiSuccess)
    return "CUPTI does not trace kernels: " + api_.describe(r);
  copies_ = api_.enable(kMemcpy) == kCuptiSuccess;
  sets_ = api_.enable(kMemset) == kCuptiSuccess;
  return {};
}

void WindowRunner::disable_kinds() {
  if (sets_) api_.disable(kMemset);
  if (copies_) api_.disable(kMemcpy);
  api_.disable(kConcurrentKernel);
}

size_t WindowRunner::drain() {
  size_t buffers = 0;
  pool_.drain([&](uint8_t *buffer, size_t valid_size) {
    reader_.read(api_, buffer, valid_size, store_);
    ++buffers;
  });
  return buffers;
}

void WindowRunner::wait(uint32_t duration_ms, WindowReport &report, const Pause &pause) {
  const uint64_t until_ns = steady_now_ns() + duration_ms * uint64_t{1'000'000};
  for (uint64_t now_ns = steady_now_ns(); now_ns < until_ns; now_ns = steady_now_ns()) {
    const uint64_t left_ms = (until_ns - now_ns) / 1'000'000 + 1;
    const bool told_to_end = pause(static_cast<uint32_t>(std::min<uint64_t>(left_ms, kPollMs)));
    drain();
    report.ended_early = told_to_end || store_.nearly_full() || pool_.free_main() == 0;
    if (report.ended_early) return;
  }
}

// Not forced as long as anything comes by itself: a forced flush returns records of replays that still run without
// stamps (M21). CUPTI holds a buffer back while one of its records is incomplete, and now and then all buffers of a
// window; those are forced out, since eager work keeps its stamps whatever the flush (M20) and what has none is dropped
// and counted. None of our locks is held meanwhile.
void WindowRunner::collect(WindowReport &report, const Pause &pause) {
  const auto has_come = [&] { return graph_level_ || reader_.counts().own_kernels != 0; };
  const uint32_t patience = forced_in_vain_ < kForcedInVain ? kSilentRoundsBefore : kSilentRoundsInVain;
  uint32_t silent = 0;
  const auto is_enough = [&] { return silent >= (has_come() ? kSilentRounds : patience); };
  for (uint32_t round = 0; round < kFlushRounds && !is_enough(); ++round) {
    {
      Stopwatch watch(report.flush_ns);
      api_.flush_all(0);
    }
    silent = drain() == 0 ? silent + 1 : 0;
    if (pool_.outstanding() == 0) break;
    pause(kFlushWaitMs);
  }
  if (!has_come() && pool_.outstanding() != 0 && forced_in_vain_ < kForcedInVain) {
    Stopwatch watch(report.flush_ns);
    flush_by_force();
    drain();
    ++forced_in_vain_;
  }
  if (has_come()) forced_in_vain_ = 0;
  size_t dropped = 0;
  if (api_.dropped_records(nullptr, 0, &dropped) == kCuptiSuccess) report.cupti_dropped = dropped;
}

void WindowRunner::flush_by_force() {
  forced_flushes_.fetch_add(1, std::memory_order_relaxed);
  api_.flush_all(kFlushForced);
}

// A buffer whose records are not all complete stays with CUPTI, which goes on filling it whoever has registered since:
// torch.profiler lost up to 2,037 of 2,037 kernels that way (soak on an H200, CUPTI 13.0). Records are of no use here, so
// what does not come by itself is forced; M21's missing stamps are the price, and nobody reads them.
bool WindowRunner::evict_buffers() {
  if (!open_) return true;
  const std::lock_guard<std::mutex> alone(evicting_);
  const auto discard = [this] { pool_.drain([](uint8_t *, size_t) {}); };
  for (uint32_t round = 0; round < kEvictRounds && pool_.not_back() != 0; ++round) {
    if (round != 0) std::this_thread::sleep_for(std::chrono::milliseconds(kEvictWaitMs));
    api_.flush_all(0);
    discard();
  }
  if (pool_.not_back() != 0) {
    flush_by_force();
    discard();
  }
  return pool_.outstanding() == 0;
}

// Kernels are recorded while it lives, whatever happens.
class WindowRunner::KindsOn {
 public:
  KindsOn(WindowRunner &runner, WindowReport &report, std::atomic<uint32_t> &live)
      : runner_(runner), report_(report), live_(live) {
    live_.store(1, std::memory_order_relaxed);
  }
  ~KindsOn() {
    live_.store(0, std::memory_order_relaxed);
    runner_.end_ = read_clocks(runner_.api_);
    report_.edges.disabled_ns = runner_.end_.cupti;
    Stopwatch watch(report_.disable_ns);
    runner_.disable_kinds();
  }
  KindsOn(const KindsOn &) = delete;
  KindsOn &operator=(const KindsOn &) = delete;

 private:
  WindowRunner &runner_;
  WindowReport &report_;
  std::atomic<uint32_t> &live_;
};

void WindowRunner::record(uint32_t duration_ms, WindowReport &report, std::atomic<uint32_t> &live, const Pause &pause) {
  report.edges.enabled_ns = begin_.cupti;
  {
    Stopwatch watch(report.enable_ns);
    report.refused = enable_kinds();
  }
  if (!report.refused.empty()) return;
  KindsOn on(*this, report, live);
  wait(duration_ms, report, pause);
}

void WindowRunner::record_graph_level(uint32_t duration_ms, WindowReport &report, const Pause &pause) {
  report.edges.enabled_ns = last_end_;
  wait(duration_ms, report, pause);
  api_.register_callbacks(on_buffer_requested, on_buffer_completed);  // somebody may have taken them (M5)
  end_ = read_clocks(api_);
  last_end_ = report.edges.disabled_ns = end_.cupti;
}

WindowReport WindowRunner::run(uint32_t duration_ms, const StepMarks &marks, std::atomic<uint32_t> &live,
                               const Pause &pause) {
  WindowReport report;
  report.graph_level = graph_level_;
  pool_.begin_window();
  begin_ = read_clocks(api_);
  reader_.reset(begin_.cupti);
  store_.clear();
  BufferTraffic &traffic = buffer_traffic();
  const uint64_t refused = traffic.refused + traffic.overflow, foreign = traffic.foreign, requested = traffic.requested;
  report.start_unix_ns = unix_now_ns();
  if (graph_level_)
    record_graph_level(duration_ms, report, pause);
  else
    record(duration_ms, report, live, pause);
  if (!report.refused.empty()) return report;
  report.end_unix_ns = unix_now_ns();
  collect(report, pause);
  report.edges.flushed_ns = read_clocks(api_).cupti;
  to_unix_time(RecordClock(begin_, end_), report, store_.begin(), store_.size(), reader_.calibration());
  report.read = reader_.counts();
  report.buffers_refused = traffic.refused + traffic.overflow - refused;
  report.buffers_foreign = traffic.foreign - foreign;
  report.buffers_lost = pool_.lost();
  const auto seen = marks.between(report.edges.enabled_ns, report.edges.disabled_ns);
  report.marks = seen.size();
  report.calibration = sum_calibration(reader_.calibration());
  report.devices = analyse(store_.begin(), store_.size(), report.edges, seen);
  add_doubts(report, seen, traffic.requested - requested);
  store_.clear();
  pool_.trim();
  return report;
}

}  // namespace replaywatch::tracer
