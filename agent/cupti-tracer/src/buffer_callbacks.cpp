#include "buffer_callbacks.h"

#include <array>
#include <cstdlib>

#include "known_pairs.h"

namespace replaywatch::tracer {
namespace {

std::atomic<BufferPool *> pool_in_use{nullptr};
std::atomic<uint32_t> cupti_version_in_use{0};
BufferTraffic traffic;

// CUPTI before API version 27 may crash when it is refused a buffer (Kineto, CuptiActivityApi.cpp). Only there, and
// only when 24 buffers are out, memory is allocated on the launch path: slow beats a crash.
std::array<std::atomic<uint8_t *>, 64> overflow_buffers;

void hand_out_overflow(uint8_t **buffer, size_t *size) {
  *buffer = static_cast<uint8_t *>(malloc(BufferPool::kReserveBytes));
  *size = *buffer != nullptr ? BufferPool::kReserveBytes : 0;
  traffic.overflow.fetch_add(1, std::memory_order_relaxed);
  for (auto &slot : overflow_buffers) {
    uint8_t *expected = nullptr;
    if (slot.compare_exchange_strong(expected, *buffer)) return;
  }
}

bool take_back_overflow(uint8_t *buffer) {
  for (auto &slot : overflow_buffers) {
    uint8_t *expected = buffer;
    if (!slot.compare_exchange_strong(expected, nullptr)) continue;
    free(buffer);
    return true;
  }
  return false;
}

}  // namespace

void serve_buffers_from(BufferPool *pool, uint32_t cupti_version) {
  cupti_version_in_use.store(cupti_version, std::memory_order_relaxed);
  pool_in_use.store(pool, std::memory_order_release);
}

BufferTraffic &buffer_traffic() { return traffic; }

void on_buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records) {
  *max_records = 0;
  *size = 0;
  traffic.requested.fetch_add(1, std::memory_order_relaxed);
  BufferPool *pool = pool_in_use.load(std::memory_order_acquire);
  *buffer = pool != nullptr ? pool->take(size) : nullptr;
  if (*buffer != nullptr) return;
  if (cupti_version_in_use.load(std::memory_order_relaxed) >= kCuptiAcceptsNoBuffer)
    traffic.refused.fetch_add(1, std::memory_order_relaxed);
  else
    hand_out_overflow(buffer, size);
}

void on_buffer_completed(void *, uint32_t, uint8_t *buffer, size_t, size_t valid_size) {
  traffic.completed.fetch_add(1, std::memory_order_relaxed);
  BufferPool *pool = pool_in_use.load(std::memory_order_acquire);
  if (pool != nullptr && pool->give_back(buffer, valid_size)) return;
  // A buffer of another client is not ours to read or free: it asked, lost the callbacks, and leaks it.
  if (buffer != nullptr && !take_back_overflow(buffer)) traffic.foreign.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace replaywatch::tracer
