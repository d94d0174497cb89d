// The few CUPTI calls that are used, found at run time in the library that the process already has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace replaywatch::tracer {

using BufferRequested = void (*)(uint8_t **buffer, size_t *size, size_t *max_records);
using BufferCompleted = void (*)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);

struct CuptiApi {
  int32_t (*get_version)(uint32_t *version) = nullptr;
  int32_t (*get_timestamp)(uint64_t *timestamp_ns) = nullptr;
  int32_t (*get_result_string)(int32_t result, const char **text) = nullptr;
  int32_t (*register_callbacks)(BufferRequested, BufferCompleted) = nullptr;
  int32_t (*enable)(uint32_t kind) = nullptr;
  int32_t (*disable)(uint32_t kind) = nullptr;
  int32_t (*flush_all)(uint32_t flag) = nullptr;
  int32_t (*next_record)(uint8_t *buffer, size_t valid_size, uint8_t **record) = nullptr;
  int32_t (*dropped_records)(void *context, uint32_t stream, size_t *dropped) = nullptr;
  uint32_t version = 0;
  std::string path;

  // Text of an error for people: its name and number.
  std::string describe(int32_t result) const;
};

// Fills `api` from libcupti.so.13, .so.12 or .so: first one that is loaded already, only then one found by its plain
// soname, because a second copy in one process collides with the first. Returns why not, or an empty text.
std::string load_cupti(CuptiApi &api);

}  // namespace replaywatch::tracer
