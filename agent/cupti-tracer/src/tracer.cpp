#include "tracer.h"

#include "json_writer.h"
#include "neighbours.h"
#include "quiet_thread.h"

namespace replaywatch::tracer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMostFinished = 4;
constexpr milliseconds kPatience{3000};
constexpr milliseconds kPatienceAtExit{500};
constexpr std::chrono::minutes kYield{5};
constexpr milliseconds kRestAfterPause{100};  // a profiler that has just stopped is still flushing

std::atomic<Tracer *> current{nullptr};

WindowReport refusal(std::string why) {
  WindowReport report;
  report.refused = std::move(why);
  return report;
}

}  // namespace

StepMarks Tracer::marks_;
std::atomic<uint32_t> Tracer::live_{0};

Tracer &Tracer::instance() {
  Tracer *tracer = current.load(std::memory_order_acquire);
  if (tracer != nullptr) return *tracer;
  auto *fresh = new Tracer;
  if (current.compare_exchange_strong(tracer, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *tracer;
}

void Tracer::forget() {
  current.store(nullptr, std::memory_order_release);
  live_.store(0, std::memory_order_relaxed);
}

Outcome Tracer::open(std::string &reason) {
  Lock lock(mutex_);
  reason = closed_ ? "the tracer has ended" : runner_.open();
  return reason.empty() ? Outcome::kOk : Outcome::kRefused;
}

Outcome Tracer::enable_graph_level(std::string &reason) {
  Lock lock(mutex_);
  if (window_open_) reason = "a kernel window is open; graph-level tracing is chosen before the first";
  if (reason.empty()) reason = closed_ ? "the tracer has ended" : runner_.open();
  if (reason.empty()) reason = runner_.enable_graph_level();
  return reason.empty() ? Outcome::kOk : Outcome::kRefused;
}

void Tracer::ensure_thread(Lock &) {
  if (thread_alive_) return;
  if (thread_.joinable()) thread_.join();
  stopping_ = false;
  thread_ = start_quiet_thread([this] { live_and_let_die(); });
  thread_alive_ = true;
}

WindowReport Tracer::run_window(uint32_t duration_ms) {
  Lock lock(mutex_);
  if (closed_) return refusal("the tracer has ended");
  if (std::string why = runner_.open(); !why.empty()) return refusal(std::move(why));
  if (pauses_ != 0) return refusal("paused: a profiler is using CUPTI");
  if (const std::string &why = reason_to_yield(); !why.empty()) return refusal(why);
  if (sink_) {  // a probe in this process has taken over from the injection: windows are its own from here on
    autonomous_ = false;
    sink_ = nullptr;
  }
  if (order_open_) return refusal("another caller waits for a window");
  ensure_thread(lock);
  order_open_ = true;
  ordered_ms_ = duration_ms;
  ordered_report_.reset();
  changed_.notify_all();
  changed_.wait(lock, [&] { return ordered_report_.has_value() || !thread_alive_; });
  order_open_ = false;
  ordered_ms_.reset();
  if (!ordered_report_.has_value()) return refusal("the tracer was stopped");
  WindowReport report = std::move(*ordered_report_);
  ordered_report_.reset();
  return report;
}

Outcome Tracer::start(uint32_t period_ms, uint32_t duration_ms, uint32_t first_after_ms, Sink sink) {
  Lock lock(mutex_);
  if (closed_ || !runner_.open().empty()) return Outcome::kRefused;
  autonomous_ = true;
  period_ = milliseconds(period_ms);
  duration_ms_ = duration_ms;
  sink_ = std::move(sink);
  next_window_ = steady_clock::now() + milliseconds(first_after_ms);
  ensure_thread(lock);
  changed_.notify_all();
  return Outcome::kOk;
}

std::optional<std::string> Tracer::collect() {
  Lock lock(mutex_);
  if (finished_.empty()) return std::nullopt;
  std::string text = std::move(finished_.front());
  finished_.pop_front();
  return text;
}

void Tracer::put_back(std::string text) {
  Lock lock(mutex_);
  finished_.push_front(std::move(text));
}

Outcome Tracer::pause() {
  Lock lock(mutex_);
  ++pauses_;
  changed_.notify_all();
  const bool quiet = changed_.wait_for(lock, kPatience, [&] { return !window_open_; });
  if (!quiet || runner_.graph_level()) return quiet ? Outcome::kOk : Outcome::kNotQuiet;
  lock.unlock();  // CUPTI is never called under a lock that its callbacks could wait for
  return runner_.evict_buffers() ? Outcome::kOk : Outcome::kNotQuiet;
}

Outcome Tracer::resume() {
  Lock lock(mutex_);
  if (pauses_ != 0) --pauses_;
  if (pauses_ == 0) yielded_.clear();
  next_window_ = std::max(next_window_, steady_clock::now() + kRestAfterPause);
  changed_.notify_all();
  return Outcome::kOk;
}

bool Tracer::end_thread(Lock &lock, milliseconds patience) {
  autonomous_ = false;
  stopping_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, patience, [&] { return !thread_alive_; })) return false;
  if (thread_.joinable()) thread_.join();
  return true;
}

Outcome Tracer::stop() {
  Lock lock(mutex_);
  return end_thread(lock, kPatience) ? Outcome::kOk : Outcome::kNotQuiet;
}

void Tracer::shut_down() {
  Lock lock(mutex_);
  closed_ = true;
  if (!end_thread(lock, kPatienceAtExit) && thread_.joinable()) thread_.detach();
}

// Another CUPTI client has way for some minutes, or until a profiler that was seen has ended.
const std::string &Tracer::reason_to_yield() {
  if (!yielded_.empty() && steady_clock::now() >= yielded_until_) yielded_.clear();
  return yielded_;
}

bool Tracer::work_is_due(steady_clock::time_point now) {
  if (ordered_ms_.has_value()) return true;
  return autonomous_ && pauses_ == 0 && now >= next_window_;
}

void Tracer::loop() {
  Lock lock(mutex_);
  while (!stopping_) {
    const auto now = steady_clock::now();
    if (work_is_due(now)) {
      one_window(lock);
    } else if (autonomous_ && pauses_ == 0) {
      changed_.wait_until(lock, next_window_);
    } else {
      changed_.wait(lock);
    }
  }
  thread_alive_ = false;
  changed_.notify_all();
}

// The border of the helper thread: a fault ends the tracer for good, and nothing else.
void Tracer::live_and_let_die() {
  try {
    loop();
  } catch (...) {
    Lock lock(mutex_);
    live_.store(0, std::memory_order_relaxed);
    closed_ = true;
    window_open_ = thread_alive_ = false;
    changed_.notify_all();
  }
}

// Ends the wait inside a window when there is a reason to; called without the lock.
bool Tracer::wait_in_window(uint32_t wait_ms) {
  Lock lock(mutex_);
  return changed_.wait_for(lock, milliseconds(wait_ms), [&] { return stopping_ || pauses_ != 0; });
}

void Tracer::one_window(Lock &lock) {
  const bool ordered = ordered_ms_.has_value();
  const uint32_t duration_ms = ordered ? *ordered_ms_ : duration_ms_;
  ordered_ms_.reset();
  if (!ordered) next_window_ = steady_clock::now() + period_;
  WindowReport report;
  if (pauses_ != 0) {
    report = refusal("paused: a profiler is using CUPTI");
  } else if (!reason_to_yield().empty()) {
    report = refusal(yielded_);
  } else {
    const bool injected = !ordered && sink_ != nullptr;
    window_open_ = true;
    lock.unlock();
    if (std::string why = find_obstacle(injected); !why.empty())
      report = refusal(std::move(why));
    else
      report = runner_.run(duration_ms, marks_, live_, [this](uint32_t ms) { return wait_in_window(ms); });
    lock.lock();
    window_open_ = false;
  }
  cost_.windows += report.refused.empty();
  if (report.refused.empty()) cost_.traced_ns += report.end_unix_ns - report.start_unix_ns;
  cost_.cpu_ns = thread_cpu_ns();
  if (report.yielded && !report.reasons.empty()) {
    yielded_ = report.reasons.front();
    yielded_until_ = steady_clock::now() + kYield;
  }
  if (ordered) {
    ordered_report_ = std::move(report);
  } else if (sink_) {
    const Sink sink = sink_;
    const HelperCost cost = cost_;
    lock.unlock();
    sink(report, cost);
    lock.lock();
  } else {
    publish(report);
  }
  changed_.notify_all();
}

void Tracer::publish(const WindowReport &report) {
  finished_.push_back(to_json(report));
  if (finished_.size() <= kMostFinished) return;
  finished_.pop_front();
  ++cost_.results_dropped;
}

std::string Tracer::status_json() {
  Lock lock(mutex_);
  JsonWriter json;
  json.begin_object().field("cupti_version", runner_.api().version).field("cupti_path", runner_.api().path);
  json.field("running", thread_alive_).field("autonomous", autonomous_).field("graph_level", runner_.graph_level());
  json.field("paused", pauses_ != 0).field("yielded", yielded_).field("windows", cost_.windows);
  json.field("forced_flushes", runner_.forced_flushes());
  json.field("traced_ns", cost_.traced_ns).field("helper_cpu_ns", cost_.cpu_ns);
  json.field("results_dropped", cost_.results_dropped).end_object();
  return json.text();
}

}  // namespace replaywatch::tracer
