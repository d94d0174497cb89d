// The helper thread that owns CUPTI, and the commands to it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "step_marks.h"
#include "window.h"

namespace replaywatch::tracer {

enum class Outcome : int32_t { kOk = 0, kRefused = 1, kNotQuiet = 2, kFailed = 3 };

// What the helper thread did so far.
struct HelperCost {
  uint64_t windows = 0;
  uint64_t traced_ns = 0;
  uint64_t cpu_ns = 0;
  uint64_t results_dropped = 0;
};

class Tracer {
 public:
  // Receives each window of the autonomous mode on the helper thread.
  using Sink = std::function<void(const WindowReport &, const HelperCost &)>;

  // The tracer of this process; a child of fork gets a fresh one. Never destroyed: CUPTI may call back until the end.
  static Tracer &instance();
  // A fork's child: forgets the parent's tracer, whose thread does not exist here.
  static void forget();

  Outcome open(std::string &reason);
  Outcome enable_graph_level(std::string &reason);

  // Blocks until the window is over and read.
  WindowReport run_window(uint32_t duration_ms);
  Outcome start(uint32_t period_ms, uint32_t duration_ms, uint32_t first_after_ms, Sink sink);
  std::optional<std::string> collect();
  void put_back(std::string text);

  Outcome pause();
  Outcome resume();
  Outcome stop();
  // At the end of the process: as stop, but waits less, and nothing starts again.
  void shut_down();

  std::string status_json();

  // One for the process, whatever tracer is current: hooks write marks at any time.
  static StepMarks &marks() { return marks_; }
  static std::atomic<uint32_t> &live() { return live_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  void ensure_thread(Lock &lock);
  void loop();
  void live_and_let_die();
  const std::string &reason_to_yield();
  bool work_is_due(std::chrono::steady_clock::time_point now);
  void one_window(Lock &lock);
  void publish(const WindowReport &report);
  bool wait_in_window(uint32_t wait_ms);
  bool end_thread(Lock &lock, std::chrono::milliseconds patience);

  static StepMarks marks_;
  static std::atomic<uint32_t> live_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  bool thread_alive_ = false;
  bool stopping_ = false;
  bool closed_ = false;
  bool window_open_ = false;
  uint32_t pauses_ = 0;
  std::string yielded_;  // why no window runs; empty while they run
  std::chrono::steady_clock::time_point yielded_until_;

  bool autonomous_ = false;
  std::chrono::milliseconds period_{0};
  uint32_t duration_ms_ = 0;
  std::chrono::steady_clock::time_point next_window_;
  Sink sink_;

  std::optional<uint32_t> ordered_ms_;  // a window that run_window waits for
  std::optional<WindowReport> ordered_report_;
  bool order_open_ = false;

  std::deque<std::string> finished_;
  HelperCost cost_;
  WindowRunner runner_;
};

}  // namespace replaywatch::tracer
