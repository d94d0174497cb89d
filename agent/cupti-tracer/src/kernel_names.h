// What a kernel's name says, remembered by the address of the name: CUPTI gives equal kernels one address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace replaywatch::tracer {

struct KernelName {
  bool is_copy = false;
  bool is_calibration = false;
};

// Reads a name: copies write tensors into others (PyTorch's copy kernels, `memcpy` kernels of libraries).
KernelName read_kernel_name(const char *name);

// A bounded cache for one window; addresses may be reused after a module is unloaded, so it is cleared between windows.
class KernelNames {
 public:
  KernelName look_up(const char *name);
  void clear();

 private:
  static constexpr size_t kSlots = 4096;
  struct Entry {
    const char *name = nullptr;
    KernelName known;
  };
  std::array<Entry, kSlots> entries_{};
};

}  // namespace replaywatch::tracer
