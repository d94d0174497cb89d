// The driver calls of the calibration on a device that is only arithmetic: a null kernel takes 1,000 ns, the next node
// of a graph begins 420 ns later, the next queued launch 900 ns later. It keeps the driver's rules on stream capture.
#include <dlfcn.h>
#include <stdint.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int32_t kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kInvalidContext = 201, kNotFound = 500,
                  kCaptureUnsupported = 900;
constexpr int32_t kRelaxed = 2;
constexpr uint64_t kKernelNs = 1000, kNodeGapNs = 420, kQueuedGapNs = 900;

std::atomic<bool> initialised{true}, has_context{true}, has_current{true}, global_capture{false}, capture_broken{false};
std::atomic<int64_t> live_objects{0};
std::atomic<int32_t> driver_version{13000};
thread_local int32_t capture_mode = 0;
thread_local void *current = nullptr;

struct Graph {
  uint32_t nodes = 0;
  uint32_t cupti_graph = 0;
};

struct Event {
  uint64_t at_ns = 0;
};

std::atomic<uint64_t> stream_ns{0};

void *object() {
  ++live_objects;
  return new char;
}

int32_t destroy(void *thing) {
  --live_objects;
  delete static_cast<char *>(thing);
  return kSuccess;
}

// Calls that would break a capture which another thread has begun in global mode.
int32_t unsafe() {
  if (!global_capture || capture_mode == kRelaxed) return kSuccess;
  capture_broken = true;
  return kCaptureUnsupported;
}

template <typename F>
F cupti(const char *name) {
  void *library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<F>(dlsym(library, name)) : nullptr;
}

void record_replay(const Graph &graph, uint64_t start_ns) {
  const auto now = cupti<int32_t (*)(uint64_t *)>("cuptiGetTimestamp");
  const auto launch =
      cupti<void (*)(uint32_t, uint32_t, const char *, uint64_t, uint64_t, uint32_t, uint64_t, uint32_t)>(
          "fake_launch_node");
  const auto next = cupti<uint32_t (*)()>("fake_next_correlation");
  if (launch == nullptr || now == nullptr || next == nullptr) return;
  const uint32_t correlation = next();
  for (uint32_t i = 0; i < graph.nodes; ++i, start_ns += kKernelNs + kNodeGapNs)
    launch(0, 99, "replaywatch_null", start_ns, start_ns + kKernelNs, graph.cupti_graph, i + 1, correlation);
}

}  // namespace

extern "C" {

void fake_cuda_set(const char *what, int32_t on) {
  const std::string name = what;
  if (name == "initialised") initialised = on != 0;
  if (name == "context") has_context = on != 0;
  if (name == "current") has_current = on != 0;  // of threads that chose none
  if (name == "global_capture") global_capture = on != 0, capture_broken = false;
  if (name == "driver_version") driver_version = on;
}

int64_t fake_cuda_get(const char *what) {
  const std::string name = what;
  if (name == "capture_broken") return capture_broken;
  if (name == "live_objects") return live_objects;
  return -1;
}

int32_t cuDeviceGetCount(int32_t *count) {
  *count = 1;
  return initialised ? kSuccess : kNotInitialized;
}
int32_t cuDriverGetVersion(int32_t *version) {
  *version = driver_version;
  return kSuccess;
}
int32_t cuCtxGetCurrent(void **context) {
  *context = current != nullptr ? current : has_context && has_current ? &has_context : nullptr;
  return initialised ? kSuccess : kNotInitialized;
}
int32_t cuDevicePrimaryCtxGetState(int32_t device, uint32_t *flags, int32_t *active) {
  *flags = 0;
  *active = has_context;
  return device == 0 ? kSuccess : kInvalidValue;
}
int32_t cuDevicePrimaryCtxRetain(void **context, int32_t) {
  *context = object();
  return kSuccess;
}
int32_t cuDevicePrimaryCtxRelease_v2(int32_t) { return --live_objects, kSuccess; }
int32_t cuCtxPushCurrent_v2(void *context) {
  current = context;
  return kSuccess;
}
int32_t cuCtxPopCurrent_v2(void **context) {
  *context = current;
  delete static_cast<char *>(current);
  current = nullptr;
  return kSuccess;
}
int32_t cuThreadExchangeStreamCaptureMode(int32_t *mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
int32_t cuModuleLoadData(void **module, const void *image) {
  if (const int32_t r = unsafe(); r != kSuccess) return r;
  if (std::strstr(static_cast<const char *>(image), ".visible .entry replaywatch_null()") == nullptr)
    return kInvalidValue;
  *module = object();
  return kSuccess;
}
int32_t cuModuleUnload(void *module) { return destroy(module); }
int32_t cuModuleGetFunction(void **function, void *module, const char *name) {
  if (module == nullptr || std::strcmp(name, "replaywatch_null") != 0) return kNotFound;
  *function = module;
  return kSuccess;
}
int32_t cuStreamCreate(void **stream, uint32_t flags) {
  if (const int32_t r = unsafe(); r != kSuccess) return r;
  if (flags != 1) return kInvalidValue;  // a blocking stream would join the legacy stream's captures
  *stream = object();
  return kSuccess;
}
int32_t cuStreamDestroy_v2(void *stream) { return destroy(stream); }
int32_t cuStreamSynchronize(void *) { return unsafe(); }
int32_t cuEventCreate(void **event, uint32_t) {
  ++live_objects;
  *event = new Event;
  return kSuccess;
}
int32_t cuEventDestroy_v2(void *event) {
  --live_objects;
  delete static_cast<Event *>(event);
  return kSuccess;
}
int32_t cuEventRecord(void *event, void *) {
  static_cast<Event *>(event)->at_ns = stream_ns;
  return kSuccess;
}
int32_t cuEventElapsedTime(float *ms, void *begin, void *end) {
  *ms = static_cast<float>(static_cast<Event *>(end)->at_ns - static_cast<Event *>(begin)->at_ns) / 1e6f;
  return kSuccess;
}
int32_t cuLaunchKernel(void *function, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                       void *stream, void **, void **) {
  if (function == nullptr || stream == nullptr) return kInvalidContext;
  stream_ns += kKernelNs + kQueuedGapNs;
  return kSuccess;
}
int32_t cuGraphCreate(void **graph, uint32_t) {
  ++live_objects;
  *graph = new Graph;
  return kSuccess;
}
int32_t cuGraphDestroy(void *graph) {
  --live_objects;
  delete static_cast<Graph *>(graph);
  return kSuccess;
}
int32_t cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t count, const void *params) {
  Graph *g = static_cast<Graph *>(graph);
  if (params == nullptr || count != (g->nodes != 0 ? 1u : 0u) || (count != 0 && after[0] == nullptr))
    return kInvalidValue;
  ++g->nodes;
  *node = reinterpret_cast<void *>(static_cast<uintptr_t>(g->nodes));
  return kSuccess;
}
int32_t cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  if (const int32_t r = unsafe(); r != kSuccess) return r;
  ++live_objects;
  auto *instance = new Graph(*static_cast<Graph *>(graph));
  if (const auto instantiate = cupti<uint32_t (*)()>("fake_instantiate")) instance->cupti_graph = instantiate();
  *exec = instance;
  return kSuccess;
}
int32_t cuGraphExecDestroy(void *exec) { return cuGraphDestroy(exec); }
int32_t cuGraphLaunch(void *exec, void *) {
  const Graph &graph = *static_cast<Graph *>(exec);
  uint64_t now_ns = 0;
  if (const auto now = cupti<int32_t (*)(uint64_t *)>("cuptiGetTimestamp")) now(&now_ns);
  record_replay(graph, now_ns);
  stream_ns += graph.nodes * (kKernelNs + kNodeGapNs);
  if (const auto advance = cupti<void (*)(uint64_t)>("fake_advance")) advance(graph.nodes * (kKernelNs + kNodeGapNs));
  return kSuccess;
}
}
