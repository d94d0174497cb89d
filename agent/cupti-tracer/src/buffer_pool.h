// Memory that CUPTI fills with records: one fixed mapping, handed out without a lock or an allocation, because CUPTI
// asks for buffers on the application's launching thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace replaywatch::tracer {

class BufferPool {
 public:
  static constexpr size_t kMainBytes = 1u << 20;  // some 4,200 kernel records
  static constexpr size_t kReserveBytes = 32u << 10;
  static constexpr size_t kMainAtOnce = 8;
  static constexpr size_t kMainSlots = 24;  // 8 in use, and room for 16 that another CUPTI client took away for good
  static constexpr size_t kReserveSlots = 16;
  static constexpr size_t kSlots = kMainSlots + kReserveSlots;

  // Maps the memory (pages are touched only when used); false when the system refuses.
  bool map();

  // A free buffer and its size, or nullptr. Lock-free.
  uint8_t *take(size_t *size);

  // CUPTI gives a buffer back; false when it is not one of ours. Lock-free.
  bool give_back(const uint8_t *buffer, size_t valid_size);

  // Calls `read(buffer, valid_size)` for each full buffer and frees it. One thread at a time.
  template <typename Read>
  void drain(Read &&read) {
    for (size_t i = 0; i < kSlots; ++i) {
      if (slots_[i].state.load(std::memory_order_acquire) != kFull) continue;
      read(address(i), slots_[i].valid_size);
      slots_[i].state.store(kFree, std::memory_order_release);
    }
  }

  // A window begins: buffers that are still out since the window before last count as lost, others take their place.
  void begin_window();

  // Gives the pages of free buffers back to the system.
  void trim();

  size_t outstanding() const;
  // Those and the ones that count as lost: what CUPTI may still be filling.
  size_t not_back() const { return outstanding() + lost(); }
  size_t lost() const { return lost_.load(std::memory_order_relaxed); }
  // Free main buffers; a window ends early when none is left.
  size_t free_main() const;

 private:
  enum State : uint32_t { kFree, kOut, kFull, kLost, kBusy };
  struct Slot {
    std::atomic<uint32_t> state{kFree};
    size_t valid_size = 0;
    std::atomic<uint32_t> window{0};
  };

  uint8_t *address(size_t slot) const;
  size_t main_limit() const;

  uint8_t *memory_ = nullptr;
  std::array<Slot, kSlots> slots_;
  std::atomic<uint32_t> window_{0};
  std::atomic<size_t> lost_{0};
};

}  // namespace replaywatch::tracer
