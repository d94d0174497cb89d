#include "drill.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fake_cupti.h"
#include "rw_tracer.h"

namespace {

// CUPTI's clock is the time of day.
uint64_t unix_now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

constexpr size_t kJsonBytes = 1u << 18;
constexpr uint32_t kNodes = 40;

using Json = std::vector<char>;

void open_tracer() {
  char reason[256] = {};
  EXPECT(rw_tracer_open(reason, sizeof reason) == RW_OK);
}

std::string window(uint32_t ms) {
  Json json(kJsonBytes);
  const int64_t length = rw_tracer_run_window(ms, json.data(), json.size());
  EXPECT(length > 0);
  return {json.data(), static_cast<size_t>(length)};
}

bool holds(const std::string &text, const char *part) { return text.find(part) != text.npos; }

// Windows on their own while threads launch, others pause, order windows, read results.
int drill_crowd() {
  open_tracer();
  EXPECT(rw_tracer_start(15, 8) == RW_OK);
  Load load(3);
  std::atomic<bool> done{false};
  std::thread pauser([&] {
    while (!done.load()) {
      EXPECT(rw_tracer_pause() == RW_OK);
      EXPECT(fake_wait_for_kind(10, 0, 1000) == 1);
      EXPECT(rw_tracer_resume() == RW_OK);
      std::this_thread::sleep_for(std::chrono::milliseconds(7));
    }
  });
  std::thread reader([&] {
    Json json(kJsonBytes);
    while (!done.load()) {
      rw_tracer_collect(json.data(), json.size());
      rw_tracer_status(json.data(), json.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });
  for (int i = 0; i < 25; ++i) window(6);
  done = true;
  pauser.join();
  reader.join();
  EXPECT(rw_tracer_stop() == RW_OK);
  EXPECT(fake_count("finalizes") == 0 && fake_count("subscriptions") == 0);
  return 0;
}

std::vector<uint8_t> other_buffer(1u << 20);
std::atomic<uint32_t> other_completions{0};
void other_requested(uint8_t **buffer, size_t *size, size_t *max_records) {
  *buffer = other_buffer.data();
  *size = other_buffer.size();
  *max_records = 0;
}
void other_completed(void *, uint32_t, uint8_t *, size_t, size_t) { ++other_completions; }

// Another client takes the callbacks inside a window; the next window must get them back.
int drill_stolen() {
  open_tracer();
  std::thread thief([] {
    EXPECT(fake_wait_for_kind(10, 1, 5000) == 1);
    cuptiActivityRegisterCallbacks(other_requested, other_completed);
    Work(1).some(3);
    uint64_t now = 0;
    cuptiGetTimestamp(&now);
    for (int i = 0; i < 4; ++i) rw_tracer_mark_step(RW_STEP_FULL, now - 4000 + static_cast<uint64_t>(i) * 1000);
  });
  const std::string stolen = window(300);
  thief.join();
  EXPECT(holds(stolen, "took the buffer callbacks"));
  EXPECT(other_completions.load() != 0);
  Load load(1);
  EXPECT(!holds(window(30), "\"records\":0,"));
  return 0;
}

// A thief that takes the callbacks with our buffer in flight, again and again: each buffer is lost for good.
int drill_robbed() {
  open_tracer();
  std::string last;
  for (int i = 0; i < 40; ++i) {
    std::thread thief([] {
      if (fake_wait_for_kind(10, 1, 5000) != 1) return;
      Work(1).some(1);
      cuptiActivityRegisterCallbacks(other_requested, other_completed);
      cuptiActivityFlushAll(0);
    });
    last = window(20);
    thief.join();
  }
  EXPECT(holds(last, "kept all record buffers"));
  EXPECT(other_completions.load() >= 24);
  return 0;
}

// A child of fork has no helper thread, and may have a tracer of its own.
int drill_fork() {
  open_tracer();
  EXPECT(rw_tracer_start(10, 5) == RW_OK);
  {
    Load load(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Json json(kJsonBytes);
      EXPECT(rw_tracer_collect(json.data(), json.size()) == 0);
      EXPECT(rw_tracer_pause() == RW_OK && rw_tracer_resume() == RW_OK);
      EXPECT(rw_tracer_stop() == RW_OK);
      _exit(0);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT(rw_tracer_stop() == RW_OK);
  return 0;
}

// The process ends while a window is open and work is launched.
int drill_exit() {
  open_tracer();
  EXPECT(rw_tracer_start(1, 10'000) == RW_OK);
  EXPECT(fake_wait_for_kind(10, 1, 5000) == 1);
  static Load *load = new Load(1);  // still launching at the end
  (void)load;
  exit(0);
}

// Records come faster than they can be kept.
int drill_flood() {
  open_tracer();
  std::thread flood([] {
    EXPECT(fake_wait_for_kind(10, 1, 5000) == 1);
    Work work(1);
    for (int i = 0; i < 300 && fake_wait_for_kind(10, 1, 0) == 1; ++i) work.some(25);
  });
  const std::string report = window(20'000);
  flood.join();
  EXPECT(holds(report, "\"ended_early\":true"));
  return 0;
}

int drill_closed() {
  char reason[256] = {};
  fake_reset(21);
  EXPECT(rw_tracer_open(reason, sizeof reason) == RW_REFUSED);
  EXPECT(strstr(reason, "older than 12.4") != nullptr);
  EXPECT(holds(window(5), "refused"));
  EXPECT(rw_tracer_start(10, 5) == RW_REFUSED);
  return 0;
}

}  // namespace

Load::Load(uint32_t threads) {
  for (uint32_t i = 0; i < threads; ++i)
    threads_.emplace_back([this, i] {
      Work work(i + 1);
      while (!done_.load()) {
        work.some(1);
        rw_tracer_mark_step(RW_STEP_FULL, unix_now_ns());
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
}

Load::~Load() {
  done_ = true;
  for (std::thread &thread : threads_) thread.join();
}

Work::Work(uint32_t stream) : stream_(stream), graph_(fake_instantiate()) {}

void Work::some(uint32_t steps) {
  std::vector<uint32_t> streams(kNodes, stream_);
  std::vector<uint64_t> starts(kNodes), ends(kNodes);
  for (uint32_t step = 0; step < steps; ++step) {
    uint64_t at = 0;
    cuptiGetTimestamp(&at);
    for (uint32_t i = 0; i < kNodes; ++i, at += 3500) starts[i] = at, ends[i] = at + 3000;
    fake_launch_graph(graph_, 0, kNodes, streams.data(), starts.data(), ends.data(), 0);
    for (uint32_t i = 0; i < kNodes; ++i, at += 9000) fake_launch_kernel(0, stream_, "eager", at, at + 4000);
    fake_launch_copy(0, stream_, 1, 4096, at, at + 2000);
    fake_set_clock(at + 5000);
  }
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  fake_reset(130001);
  fake_set_clock(unix_now_ns());
  const std::string name = argv[1];
  if (name == "crowd") return drill_crowd();
  if (name == "stolen") return drill_stolen();
  if (name == "robbed") return drill_robbed();
  if (name == "fork") return drill_fork();
  if (name == "exit") return drill_exit();
  if (name == "flood") return drill_flood();
  if (name == "closed") return drill_closed();
  if (name == "agent" && argc > 2) return drill_agent(argv[2]);
  return 2;
}
