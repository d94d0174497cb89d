#include "cuda_driver.h"

#include <dlfcn.h>

namespace replaywatch::tracer {
namespace {

void *loaded_driver() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

template <typename F>
void bind(void *library, const char *name, F &function, std::string &missing) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace

std::string bind_cuda_driver(CudaDriver &d) {
  void *library = loaded_driver();
  if (library == nullptr) return "libcuda is not loaded in this process";
  std::string missing;
  bind(library, "cuDeviceGetCount", d.device_count, missing);
  bind(library, "cuDriverGetVersion", d.driver_version, missing);
  bind(library, "cuCtxGetCurrent", d.current_context, missing);
  bind(library, "cuDevicePrimaryCtxGetState", d.primary_state, missing);
  bind(library, "cuDevicePrimaryCtxRetain", d.primary_retain, missing);
  bind(library, "cuDevicePrimaryCtxRelease_v2", d.primary_release, missing);
  bind(library, "cuCtxPushCurrent_v2", d.push_context, missing);
  bind(library, "cuCtxPopCurrent_v2", d.pop_context, missing);
  bind(library, "cuThreadExchangeStreamCaptureMode", d.exchange_capture_mode, missing);
  bind(library, "cuModuleLoadData", d.load_module, missing);
  bind(library, "cuModuleUnload", d.unload_module, missing);
  bind(library, "cuModuleGetFunction", d.get_function, missing);
  bind(library, "cuStreamCreate", d.create_stream, missing);
  bind(library, "cuStreamDestroy_v2", d.destroy_stream, missing);
  bind(library, "cuStreamSynchronize", d.synchronize_stream, missing);
  bind(library, "cuEventCreate", d.create_event, missing);
  bind(library, "cuEventDestroy_v2", d.destroy_event, missing);
  bind(library, "cuEventRecord", d.record_event, missing);
  bind(library, "cuEventElapsedTime", d.elapsed_ms, missing);
  bind(library, "cuLaunchKernel", d.launch_kernel, missing);
  bind(library, "cuGraphCreate", d.create_graph, missing);
  bind(library, "cuGraphDestroy", d.destroy_graph, missing);
  bind(library, "cuGraphAddKernelNode_v2", d.add_kernel_node, missing);
  bind(library, "cuGraphInstantiateWithFlags", d.instantiate, missing);
  bind(library, "cuGraphExecDestroy", d.destroy_exec, missing);
  bind(library, "cuGraphLaunch", d.launch_graph, missing);
  return missing.empty() ? std::string() : "libcuda lacks " + missing;
}

bool cuda_is_initialised() {
  void *library = loaded_driver();
  if (library == nullptr) return false;
  const auto device_count = reinterpret_cast<int32_t (*)(int32_t *)>(dlsym(library, "cuDeviceGetCount"));
  int32_t count = 0;
  return device_count != nullptr && device_count(&count) != kCudaNotInitialized;
}

uint32_t cuda_driver_version() {
  void *library = loaded_driver();
  if (library == nullptr) return 0;
  const auto get_version = reinterpret_cast<int32_t (*)(int32_t *)>(dlsym(library, "cuDriverGetVersion"));
  int32_t version = 0;
  if (get_version == nullptr || get_version(&version) != kCudaSuccess || version < 0) return 0;
  return static_cast<uint32_t>(version);
}

}  // namespace replaywatch::tracer
