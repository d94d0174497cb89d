// The CUDA driver calls that the calibration needs, found in the libcuda that the process already has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace replaywatch::tracer {

using CudaHandle = void *;

// CUresult
constexpr int32_t kCudaSuccess = 0;
constexpr int32_t kCudaNotInitialized = 3;

// CUDA_KERNEL_NODE_PARAMS_v2; the trailing fields came with CUDA 12.0.
struct KernelNodeParams {
  CudaHandle function = nullptr;
  uint32_t grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  void **kernel_params = nullptr;
  void **extra = nullptr;
  CudaHandle kernel = nullptr;
  CudaHandle context = nullptr;
};

struct CudaDriver {
  int32_t (*device_count)(int32_t *count) = nullptr;
  int32_t (*driver_version)(int32_t *version) = nullptr;
  int32_t (*current_context)(CudaHandle *context) = nullptr;
  int32_t (*primary_state)(int32_t device, uint32_t *flags, int32_t *active) = nullptr;
  int32_t (*primary_retain)(CudaHandle *context, int32_t device) = nullptr;
  int32_t (*primary_release)(int32_t device) = nullptr;
  int32_t (*push_context)(CudaHandle context) = nullptr;
  int32_t (*pop_context)(CudaHandle *context) = nullptr;
  int32_t (*exchange_capture_mode)(int32_t *mode) = nullptr;
  int32_t (*load_module)(CudaHandle *module, const void *image) = nullptr;
  int32_t (*unload_module)(CudaHandle module) = nullptr;
  int32_t (*get_function)(CudaHandle *function, CudaHandle module, const char *name) = nullptr;
  int32_t (*create_stream)(CudaHandle *stream, uint32_t flags) = nullptr;
  int32_t (*destroy_stream)(CudaHandle stream) = nullptr;
  int32_t (*synchronize_stream)(CudaHandle stream) = nullptr;
  int32_t (*create_event)(CudaHandle *event, uint32_t flags) = nullptr;
  int32_t (*destroy_event)(CudaHandle event) = nullptr;
  int32_t (*record_event)(CudaHandle event, CudaHandle stream) = nullptr;
  int32_t (*elapsed_ms)(float *ms, CudaHandle begin, CudaHandle end) = nullptr;
  int32_t (*launch_kernel)(CudaHandle function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                           uint32_t bz, uint32_t shared, CudaHandle stream, void **params, void **extra) = nullptr;
  int32_t (*create_graph)(CudaHandle *graph, uint32_t flags) = nullptr;
  int32_t (*destroy_graph)(CudaHandle graph) = nullptr;
  int32_t (*add_kernel_node)(CudaHandle *node, CudaHandle graph, const CudaHandle *after, size_t count,
                             const KernelNodeParams *params) = nullptr;
  int32_t (*instantiate)(CudaHandle *exec, CudaHandle graph, unsigned long long flags) = nullptr;
  int32_t (*destroy_exec)(CudaHandle exec) = nullptr;
  int32_t (*launch_graph)(CudaHandle exec, CudaHandle stream) = nullptr;
};

// Binds a loaded libcuda.so.1; never loads one. Returns why not, or an empty text.
std::string bind_cuda_driver(CudaDriver &driver);

// Whether cuInit has run; false also when there is no libcuda.
bool cuda_is_initialised();

// cuDriverGetVersion of the loaded driver, 0 when there is none.
uint32_t cuda_driver_version();

}  // namespace replaywatch::tracer
