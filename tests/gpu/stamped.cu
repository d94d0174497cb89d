// Kernels that say themselves when they ran: each stamps the device's own nanosecond clock as it begins and as it ends.
// Built by against_stamps.py as a shared library; works inside a capture, whose replays then stamp as well.
#include <chrono>
#include <cstdint>

#include <cuda_runtime.h>

namespace {

__device__ uint64_t device_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// `taken` counts kernels; stamps[2 * i] and [2 * i + 1] are begin and end of the i-th that ended, as a ring.
__global__ void stamped(uint64_t *stamps, unsigned long long *taken, uint64_t slots, int64_t cycles) {
  const uint64_t begin = device_ns();
  for (const int64_t from = clock64(); clock64() - from < cycles;) {
  }
  const uint64_t slot = atomicAdd(taken, 1ULL) % slots;
  stamps[2 * slot] = begin;
  stamps[2 * slot + 1] = device_ns();
}

int64_t host_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// Launch `count` kernels of `cycles` on a stream, with the host idling `pause_ns` before each. 0, or CUDA's error.
extern "C" int launch(void *stream, int count, int64_t cycles, int64_t pause_ns, uint64_t *stamps,
                      unsigned long long *taken, uint64_t slots) {
  for (int i = 0; i < count; ++i) {
    if (pause_ns > 0)
      for (const int64_t from = host_ns(); host_ns() - from < pause_ns;) {
      }
    stamped<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(stamps, taken, slots, cycles);
  }
  return static_cast<int>(cudaGetLastError());
}
