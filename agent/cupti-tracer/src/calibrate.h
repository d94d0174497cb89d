// What launches cost on this host and device, measured with null kernels on a stream of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cuda_driver.h"

namespace replaywatch::tracer {

struct LaunchCosts {
  uint64_t launch_host_ns = 0;        // median host time of a kernel launch
  uint64_t launch_device_ns = 0;      // per kernel, launches already queued
  uint64_t graph_launch_host_ns = 0;  // median host time of a graph launch
  uint64_t graph_node_ns = 0;         // per node of a linear graph: its run time and the gap before the next
};

// Null kernels in a context. The calling thread is put into relaxed capture mode for as long as the object lives:
// loading a module, creating streams and waiting are "unsafe" calls, and in any other mode they would invalidate a
// capture that another thread has begun in global mode. The stream does not synchronise with the legacy stream, for the
// same reason. Loading the module may compile PTX (some milliseconds, once) and may wait for running kernels: do this
// at start, before there is load.
class NullKernels {
 public:
  static constexpr uint32_t kNodes = 256;
  static constexpr uint32_t kLaunches = 200;
  static constexpr uint32_t kReplays = 8;

  NullKernels() = default;
  ~NullKernels();
  NullKernels(const NullKernels &) = delete;
  NullKernels &operator=(const NullKernels &) = delete;

  // `device` -1: the context that is current on this thread, else that of the first device on which the process has
  // one. Never creates a context. Returns why not, or an empty text.
  std::string prepare(int32_t device);
  std::string measure(LaunchCosts &costs);
  // Graph launches alone, for a kernel window to see.
  std::string replay();

 private:
  int32_t first_device_in_use() const;
  std::string enter_context(int32_t device);
  std::string build();
  std::string build_graph();
  bool time_launches(LaunchCosts &costs);
  bool time_replays(LaunchCosts &costs);

  CudaDriver cuda_;
  int32_t retained_device_ = -1;
  bool pushed_ = false;
  bool relaxed_ = false;
  int32_t capture_mode_ = 0;
  CudaHandle module_ = nullptr, function_ = nullptr, stream_ = nullptr, graph_ = nullptr, exec_ = nullptr;
  CudaHandle begin_ = nullptr, end_ = nullptr;
};

}  // namespace replaywatch::tracer
