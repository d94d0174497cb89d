// The two functions that CUPTI calls for buffers, and what they count.
#pragma once

#include <atomic>
#include <cstdint>

#include "buffer_pool.h"
#include "cupti_api.h"

namespace replaywatch::tracer {

struct BufferTraffic {
  std::atomic<uint64_t> requested{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> refused{0};   // no buffer was free: CUPTI dropped records
  std::atomic<uint64_t> overflow{0};  // the same, for a CUPTI that does not bear a refusal
  std::atomic<uint64_t> foreign{0};   // buffers of another client that came here
};

// Makes `pool` the one that the callbacks use; CUPTI keeps the addresses of the callbacks for good, so they and what
// they touch are never taken away.
void serve_buffers_from(BufferPool *pool, uint32_t cupti_version);

BufferTraffic &buffer_traffic();

// On the application's launching thread: no allocation, no lock, no log.
void on_buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records);

// On a thread of CUPTI, or on the one that flushes.
void on_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);

}  // namespace replaywatch::tracer
