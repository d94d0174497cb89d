#include "calibrate.h"

#include <time.h>

#include <algorithm>

namespace replaywatch::tracer {
namespace {

constexpr int32_t kRelaxedCapture = 2;      // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr uint32_t kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING
constexpr const char *kFunctionName = "replaywatch_null";
constexpr const char *kNullPtx =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry replaywatch_null() { ret; }\n";

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

template <size_t N>
uint64_t median(std::array<uint64_t, N> &values) {
  std::nth_element(values.begin(), values.begin() + N / 2, values.end());
  return values[N / 2];
}

std::string failed(const char *what, int32_t result) {
  return std::string(what) + " failed with CUDA error " + std::to_string(result);
}

}  // namespace

NullKernels::~NullKernels() {
  if (exec_ != nullptr) cuda_.destroy_exec(exec_);
  if (graph_ != nullptr) cuda_.destroy_graph(graph_);
  if (begin_ != nullptr) cuda_.destroy_event(begin_);
  if (end_ != nullptr) cuda_.destroy_event(end_);
  if (stream_ != nullptr) cuda_.destroy_stream(stream_);
  if (module_ != nullptr) cuda_.unload_module(module_);
  if (relaxed_) cuda_.exchange_capture_mode(&capture_mode_);
  CudaHandle popped = nullptr;
  if (pushed_) cuda_.pop_context(&popped);
  if (retained_device_ >= 0) cuda_.primary_release(retained_device_);
}

int32_t NullKernels::first_device_in_use() const {
  int32_t count = 0, active = 0;
  uint32_t flags = 0;
  if (cuda_.device_count(&count) != kCudaSuccess) return -1;
  for (int32_t device = 0; device < count; ++device)
    if (cuda_.primary_state(device, &flags, &active) == kCudaSuccess && active != 0) return device;
  return -1;
}

std::string NullKernels::enter_context(int32_t device) {
  CudaHandle context = nullptr;
  if (device < 0 && cuda_.current_context(&context) == kCudaSuccess && context != nullptr) return {};
  if (device < 0) device = first_device_in_use();
  if (device < 0) return "the process has no CUDA context";
  uint32_t flags = 0;
  int32_t active = 0;
  if (const int32_t r = cuda_.primary_state(device, &flags, &active); r != kCudaSuccess)
    return failed("cuDevicePrimaryCtxGetState", r);
  if (active == 0) return "the process has no primary context on device " + std::to_string(device);
  if (const int32_t r = cuda_.primary_retain(&context, device); r != kCudaSuccess)
    return failed("cuDevicePrimaryCtxRetain", r);
  retained_device_ = device;
  const int32_t result = cuda_.push_context(context);
  pushed_ = result == kCudaSuccess;
  return pushed_ ? std::string() : failed("cuCtxPushCurrent", result);
}

std::string NullKernels::prepare(int32_t device) {
  if (std::string why = bind_cuda_driver(cuda_); !why.empty()) return why;
  if (std::string why = enter_context(device); !why.empty()) return why;
  capture_mode_ = kRelaxedCapture;
  if (const int32_t r = cuda_.exchange_capture_mode(&capture_mode_); r != kCudaSuccess)
    return failed("cuThreadExchangeStreamCaptureMode", r);
  relaxed_ = true;
  return build();
}

std::string NullKernels::build() {
  if (const int32_t r = cuda_.load_module(&module_, kNullPtx); r != kCudaSuccess) return failed("cuModuleLoadData", r);
  if (const int32_t r = cuda_.get_function(&function_, module_, kFunctionName); r != kCudaSuccess)
    return failed("cuModuleGetFunction", r);
  if (const int32_t r = cuda_.create_stream(&stream_, kNonBlockingStream); r != kCudaSuccess)
    return failed("cuStreamCreate", r);
  if (const int32_t r = cuda_.create_event(&begin_, 0); r != kCudaSuccess) return failed("cuEventCreate", r);
  if (const int32_t r = cuda_.create_event(&end_, 0); r != kCudaSuccess) return failed("cuEventCreate", r);
  return build_graph();
}

std::string NullKernels::build_graph() {
  if (const int32_t r = cuda_.create_graph(&graph_, 0); r != kCudaSuccess) return failed("cuGraphCreate", r);
  KernelNodeParams params;
  params.function = function_;
  CudaHandle last = nullptr;
  for (uint32_t i = 0; i < kNodes; ++i) {
    CudaHandle node = nullptr;
    const int32_t r = cuda_.add_kernel_node(&node, graph_, i != 0 ? &last : nullptr, i != 0 ? 1 : 0, &params);
    if (r != kCudaSuccess) return failed("cuGraphAddKernelNode", r);
    last = node;
  }
  const int32_t result = cuda_.instantiate(&exec_, graph_, 0);
  return result == kCudaSuccess ? std::string() : failed("cuGraphInstantiateWithFlags", result);
}

// Two replays go first, so that the launches are queued on the device before the first of them can run.
bool NullKernels::time_launches(LaunchCosts &costs) {
  std::array<uint64_t, kLaunches> host{};
  bool fine = cuda_.launch_graph(exec_, stream_) == kCudaSuccess && cuda_.launch_graph(exec_, stream_) == kCudaSuccess;
  fine = fine && cuda_.record_event(begin_, stream_) == kCudaSuccess;
  for (uint64_t &one : host) {
    const uint64_t before = now_ns();
    fine = fine && cuda_.launch_kernel(function_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr) == kCudaSuccess;
    one = now_ns() - before;
  }
  float ms = 0.0f;
  fine = fine && cuda_.record_event(end_, stream_) == kCudaSuccess;
  fine = fine && cuda_.synchronize_stream(stream_) == kCudaSuccess;
  fine = fine && cuda_.elapsed_ms(&ms, begin_, end_) == kCudaSuccess;
  costs.launch_host_ns = median(host);
  costs.launch_device_ns = static_cast<uint64_t>(static_cast<double>(ms) * 1e6 / kLaunches);
  return fine;
}

bool NullKernels::time_replays(LaunchCosts &costs) {
  std::array<uint64_t, kReplays> host{};
  bool fine = cuda_.launch_graph(exec_, stream_) == kCudaSuccess;
  fine = fine && cuda_.record_event(begin_, stream_) == kCudaSuccess;
  for (uint64_t &one : host) {
    const uint64_t before = now_ns();
    fine = fine && cuda_.launch_graph(exec_, stream_) == kCudaSuccess;
    one = now_ns() - before;
  }
  float ms = 0.0f;
  fine = fine && cuda_.record_event(end_, stream_) == kCudaSuccess;
  fine = fine && cuda_.synchronize_stream(stream_) == kCudaSuccess;
  fine = fine && cuda_.elapsed_ms(&ms, begin_, end_) == kCudaSuccess;
  costs.graph_launch_host_ns = median(host);
  costs.graph_node_ns = static_cast<uint64_t>(static_cast<double>(ms) * 1e6 / kReplays / kNodes);
  return fine;
}

std::string NullKernels::measure(LaunchCosts &costs) {
  if (std::string why = replay(); !why.empty()) return why;  // the first replay uploads the graph
  return time_launches(costs) && time_replays(costs) ? std::string() : "a launch of the calibration failed";
}

std::string NullKernels::replay() {
  for (uint32_t i = 0; i < kReplays; ++i)
    if (const int32_t r = cuda_.launch_graph(exec_, stream_); r != kCudaSuccess) return failed("cuGraphLaunch", r);
  const int32_t result = cuda_.synchronize_stream(stream_);
  return result == kCudaSuccess ? std::string() : failed("cuStreamSynchronize", result);
}

}  // namespace replaywatch::tracer
