#include "buffer_pool.h"

#include <sys/mman.h>

namespace replaywatch::tracer {
namespace {

constexpr size_t kTotalBytes =
    BufferPool::kMainSlots * BufferPool::kMainBytes + BufferPool::kReserveSlots * BufferPool::kReserveBytes;

constexpr size_t slot_bytes(size_t slot) {
  return slot < BufferPool::kMainSlots ? BufferPool::kMainBytes : BufferPool::kReserveBytes;
}

constexpr size_t slot_offset(size_t slot) {
  if (slot < BufferPool::kMainSlots) return slot * BufferPool::kMainBytes;
  return BufferPool::kMainSlots * BufferPool::kMainBytes + (slot - BufferPool::kMainSlots) * BufferPool::kReserveBytes;
}

}  // namespace

bool BufferPool::map() {
  if (memory_ != nullptr) return true;
  void *mapping =
      mmap(nullptr, kTotalBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return false;
  madvise(mapping, kTotalBytes, MADV_DONTDUMP);
  memory_ = static_cast<uint8_t *>(mapping);
  return true;
}

uint8_t *BufferPool::address(size_t slot) const { return memory_ + slot_offset(slot); }

size_t BufferPool::main_limit() const {
  const size_t limit = kMainAtOnce + lost();
  return limit < kMainSlots ? limit : kMainSlots;
}

uint8_t *BufferPool::take(size_t *size) {
  if (memory_ == nullptr) return nullptr;
  for (size_t i = 0; i < kSlots; ++i) {
    if (i >= main_limit() && i < kMainSlots) continue;
    uint32_t expected = kFree;
    if (!slots_[i].state.compare_exchange_strong(expected, kOut, std::memory_order_acquire)) continue;
    slots_[i].window.store(window_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    *size = slot_bytes(i);
    return address(i);
  }
  return nullptr;
}

bool BufferPool::give_back(const uint8_t *buffer, size_t valid_size) {
  if (memory_ == nullptr || buffer < memory_ || buffer >= memory_ + kTotalBytes) return false;
  for (size_t i = 0; i < kSlots; ++i) {
    if (address(i) != buffer) continue;
    const uint32_t state = slots_[i].state.load(std::memory_order_acquire);
    if (state == kLost) lost_.fetch_sub(1, std::memory_order_relaxed);
    if (state != kOut && state != kLost) return true;  // given back twice: the first time counts
    slots_[i].valid_size = valid_size <= slot_bytes(i) ? valid_size : slot_bytes(i);
    slots_[i].state.store(kFull, std::memory_order_release);
    return true;
  }
  return false;
}

void BufferPool::begin_window() {
  const uint32_t now = window_.fetch_add(1, std::memory_order_relaxed) + 1;
  for (Slot &slot : slots_) {
    if (slot.state.load(std::memory_order_acquire) != kOut) continue;
    if (now - slot.window.load(std::memory_order_relaxed) < 3) continue;
    uint32_t expected = kOut;
    if (slot.state.compare_exchange_strong(expected, kLost)) lost_.fetch_add(1, std::memory_order_relaxed);
  }
}

void BufferPool::trim() {
  for (size_t i = 0; i < kSlots; ++i) {
    uint32_t expected = kFree;
    if (!slots_[i].state.compare_exchange_strong(expected, kBusy, std::memory_order_acquire)) continue;
    madvise(address(i), slot_bytes(i), MADV_DONTNEED);
    slots_[i].state.store(kFree, std::memory_order_release);
  }
}

size_t BufferPool::outstanding() const {
  size_t out = 0;
  for (const Slot &slot : slots_) out += slot.state.load(std::memory_order_relaxed) == kOut;
  return out;
}

size_t BufferPool::free_main() const {
  size_t free = 0;
  for (size_t i = 0; i < main_limit(); ++i) free += slots_[i].state.load(std::memory_order_relaxed) == kFree;
  return free;
}

}  // namespace replaywatch::tracer
