// The rules of CUPTI as they were read in its headers or measured on an H200 (driver 580.159.04, CUPTI 13.0.85).
#include "fake_cupti.h"

#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "buffers.h"
#include "records.h"

namespace fake {
namespace {

constexpr int32_t kSuccess = 0, kInvalidParameter = 1, kInvalidOperation = 7, kMaxLimitReached = 12,
                  kNotInitialized = 15, kInvalidKind = 21, kNotSupported = 27, kMultipleSubscribers = 39;
constexpr uint32_t kCopy = 1, kSet = 2, kDriver = 4, kRuntime = 5, kConcurrentKernel = 10, kGraphTrace = 51;

Buffers &buffers() {
  static auto *instance = new Buffers;  // its worker thread runs until the end
  return *instance;
}

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t version = 130001;
  bool finalized = false, multi_subscriber = false, subscribed = false, hold_disable = false;
  bool graph_level = false;          // chosen once, for good
  bool node_records_broken = false;  // DRIVER or RUNTIME were switched off and on
  bool mute = false;                 // kernels were switched on after copies or sets: nothing is recorded
  std::set<uint32_t> enabled, was_enabled;
  std::set<uint32_t> doomed_graphs;  // instantiated before graph-level tracing began
  uint32_t graphs = 0, correlations = 0;
  uint64_t jump_to_ns = 0;
  bool stampless = false;
  uint64_t ticks_since_ns = 0;
  uint32_t tick_rate = 0;  // thousandths of a tick in a nanosecond; 0: the time of day
  uint64_t registrations = 0, forced_flushes = 0, finalizes = 0, subscriptions = 0;
};

State &state() {
  static auto *instance = new State;
  return *instance;
}

using Lock = std::unique_lock<std::mutex>;

bool is_on(uint32_t kind) {
  Lock lock(state().mutex);
  return !state().finalized && state().enabled.count(kind) != 0;
}

uint32_t next_correlation() {
  Lock lock(state().mutex);
  return ++state().correlations;
}

// A time of day on the clock that stamps are read from.
uint64_t stamp(uint64_t unix_ns) {
  const State &s = state();
  return s.tick_rate == 0 ? unix_ns : 1'000'000 + (unix_ns - s.ticks_since_ns) * s.tick_rate / 1000;
}

uint64_t time_of_day_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void add(const Work &work) {
  if (!is_on(work.kind) || state().mute || !buffers().registered()) return;
  Work stamped = work;
  stamped.start_ns = stamp(work.start_ns);
  stamped.end_ns = stamp(work.end_ns);
  std::vector<uint8_t> record = write_record(stamped, state().version);
  if (state().stampless) erase_stamps(record.data());
  buffers().add(record, work.end_ns);
}

}  // namespace
}  // namespace fake

using namespace fake;

extern "C" {

int32_t cuptiGetVersion(uint32_t *version) {
  *version = state().version;
  return kSuccess;
}

int32_t cuptiGetTimestamp(uint64_t *timestamp) {
  *timestamp = state().tick_rate == 0 ? buffers().now_ns() : stamp(time_of_day_ns());
  return kSuccess;
}

int32_t cuptiGetResultString(int32_t result, const char **text) {
  *text = result == kMultipleSubscribers ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : result == kNotInitialized    ? "CUPTI_ERROR_NOT_INITIALIZED"
                                         : "CUPTI_ERROR";
  return kSuccess;
}

int32_t cuptiSubscribe(void **subscriber, void *, void *) {
  Lock lock(state().mutex);
  if (state().finalized) return kNotInitialized;
  if (state().subscribed) return kMultipleSubscribers;
  state().subscribed = true;
  ++state().subscriptions;
  *subscriber = &state();
  return kSuccess;
}

int32_t cuptiUnsubscribe(void *) {
  Lock lock(state().mutex);
  state().subscribed = false;
  return kSuccess;
}

int32_t cuptiFinalize() {
  Lock lock(state().mutex);
  ++state().finalizes;
  state().finalized = true;
  return kSuccess;
}

int32_t cuptiActivityRegisterCallbacks(FakeRequested requested, FakeCompleted completed) {
  if (requested == nullptr || completed == nullptr) return kInvalidParameter;
  {
    Lock lock(state().mutex);
    if (state().finalized) return kNotInitialized;
    if (state().multi_subscriber) return kNotSupported;
    ++state().registrations;
  }
  buffers().register_callbacks(requested, completed);
  return kSuccess;
}

int32_t cuptiActivityEnable(uint32_t kind) {
  Lock lock(state().mutex);
  if (state().finalized) return kNotInitialized;
  if (kind == 0 || kind > 64) return kInvalidKind;
  if (kind == kGraphTrace && !state().graph_level) {
    state().graph_level = true;
    for (uint32_t graph = 1; graph <= state().graphs; ++graph) state().doomed_graphs.insert(graph);
  }
  if ((kind == kDriver || kind == kRuntime) && state().was_enabled.count(kind) != 0 && state().enabled.count(kind) == 0)
    state().node_records_broken = true;
  if (kind == kConcurrentKernel && !state().graph_level)
    state().mute = state().enabled.count(kCopy) + state().enabled.count(kSet) != 0;
  state().enabled.insert(kind);
  state().was_enabled.insert(kind);
  const uint64_t jump_to_ns = kind == kConcurrentKernel ? std::exchange(state().jump_to_ns, 0) : 0;
  state().changed.notify_all();
  lock.unlock();
  if (jump_to_ns != 0) buffers().set_clock(jump_to_ns);
  return kSuccess;
}

int32_t cuptiActivityDisable(uint32_t kind) {
  Lock lock(state().mutex);
  if (state().finalized) return kNotInitialized;
  state().changed.wait(lock, [] { return !state().hold_disable; });
  state().enabled.erase(kind);
  state().changed.notify_all();
  return kSuccess;
}

int32_t cuptiActivityFlushAll(uint32_t flag) {
  {
    Lock lock(state().mutex);
    if (state().finalized) return kNotInitialized;
    state().forced_flushes += flag & 1;
  }
  if (!buffers().registered()) return kInvalidOperation;
  buffers().flush((flag & 1) != 0);
  return kSuccess;
}

int32_t cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, uint8_t **record) {
  if (buffer == nullptr || record == nullptr) return kInvalidParameter;
  uint8_t *next = buffer;
  if (*record != nullptr) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof kind);
    next = *record + record_size(kind, state().version);
  }
  if (next >= buffer + valid_size) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}

int32_t cuptiActivityGetNumDroppedRecords(void *, uint32_t, size_t *dropped) {
  *dropped = buffers().take_dropped();
  return kSuccess;
}

void fake_reset(uint32_t version) {
  {
    Lock lock(state().mutex);
    State &s = state();
    s.version = version;
    s.finalized = s.multi_subscriber = s.subscribed = s.hold_disable = s.graph_level = s.node_records_broken =
        s.mute = s.stampless = false;
    s.tick_rate = 0;
    s.enabled.clear();
    s.was_enabled.clear();
    s.doomed_graphs.clear();
    s.graphs = s.correlations = 0;
    s.registrations = s.forced_flushes = s.finalizes = s.subscriptions = 0;
  }
  buffers().reset(version);
}

void fake_set_clock(uint64_t now_ns) { buffers().set_clock(now_ns); }

void fake_advance(uint64_t ns) { buffers().set_clock(buffers().now_ns() + ns); }

void fake_jump_when_enabled(uint64_t now_ns) {
  Lock lock(state().mutex);
  state().jump_to_ns = now_ns;
}

void fake_set_ticks(uint64_t since_ns, uint32_t rate) {
  Lock lock(state().mutex);
  state().ticks_since_ns = since_ns;
  state().tick_rate = rate;
}

void fake_set_stampless(int32_t on) { state().stampless = on != 0; }

void fake_foreign_record(uint32_t kind) {
  const Work work{kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, nullptr};
  buffers().add(write_record(work, state().version), 0);
}

void fake_set_multi_subscriber(int32_t on) {
  Lock lock(state().mutex);
  state().multi_subscriber = on != 0;
}

void fake_hold_disable(int32_t on) {
  Lock lock(state().mutex);
  state().hold_disable = on != 0;
  state().changed.notify_all();
}

int32_t fake_wait_for_kind(uint32_t kind, int32_t on, uint32_t timeout_ms) {
  Lock lock(state().mutex);
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms);
  return state().changed.wait_until(lock, deadline, [&] { return (state().enabled.count(kind) != 0) == (on != 0); });
}

uint64_t fake_count(const char *what) {
  Lock lock(state().mutex);
  const std::string name = what;
  if (name == "registrations") return state().registrations;
  if (name == "forced_flushes") return state().forced_flushes;
  if (name == "finalizes") return state().finalizes;
  if (name == "subscriptions") return state().subscriptions;
  if (name == "enabled") return state().enabled.size();
  if (name == "requests") return buffers().requested();
  broken_rule("unknown counter");
}

void fake_launch_kernel(uint32_t device, uint32_t stream, const char *name, uint64_t start_ns, uint64_t end_ns) {
  add({kConcurrentKernel, device, stream, next_correlation(), 0, 0, start_ns, end_ns, 0, 0, name});
}

void fake_launch_copy(uint32_t device, uint32_t stream, uint32_t copy_kind, uint64_t bytes, uint64_t start_ns,
                      uint64_t end_ns) {
  add({kCopy, device, stream, next_correlation(), 0, 0, start_ns, end_ns, bytes, static_cast<uint8_t>(copy_kind),
       nullptr});
}

void fake_launch_set(uint32_t device, uint32_t stream, uint64_t bytes, uint64_t start_ns, uint64_t end_ns) {
  add({kSet, device, stream, next_correlation(), 0, 0, start_ns, end_ns, bytes, 0, nullptr});
}

uint32_t fake_next_correlation() { return next_correlation(); }

void fake_launch_node(uint32_t device, uint32_t stream, const char *name, uint64_t start_ns, uint64_t end_ns,
                      uint32_t graph, uint64_t node, uint32_t correlation) {
  add({kConcurrentKernel, device, stream, correlation, graph, node, start_ns, end_ns, 0, 0, name});
}

uint32_t fake_instantiate() {
  Lock lock(state().mutex);
  return ++state().graphs;
}

void fake_launch_graph(uint32_t graph, uint32_t device, uint32_t count, const uint32_t *streams, const uint64_t *starts,
                       const uint64_t *ends, uint32_t correlation) {
  bool graph_level = false, broken = false;
  {
    Lock lock(state().mutex);
    if (state().doomed_graphs.count(graph) != 0)
      broken_rule("a graph from before graph-level tracing was replayed under it, which segfaults");
    graph_level = state().graph_level;
    broken = state().node_records_broken;
  }
  if (correlation == 0) correlation = next_correlation();
  if (graph_level) {
    add({kGraphTrace, device, streams[0], correlation, graph, 0, starts[0], ends[count - 1], 0, 0, nullptr});
    return;
  }
  if (broken) return;
  for (uint32_t i = 0; i < count; ++i)
    add({kConcurrentKernel, device, streams[i], correlation, graph, uint64_t{graph} << 32 | (i + 1), starts[i], ends[i],
         0, 0, i % 2 != 0 ? "node_odd" : "node_even"});
}
}
