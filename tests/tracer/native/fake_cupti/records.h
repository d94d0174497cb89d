// Activity records as CUPTI of a given version writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fake {

struct Work {
  uint32_t kind;  // 1 copy, 2 set, 10 kernel, 51 graph
  uint32_t device, stream, correlation, graph;
  uint64_t node, start_ns, end_ns, bytes;
  uint8_t copy_kind;
  const char *name;
};

// Size of a record of some kind; kernels grow from version to version.
size_t record_size(uint32_t kind, uint32_t version);

std::vector<uint8_t> write_record(const Work &work, uint32_t version);

// Sets both stamps of a written record to 0, as a forced flush does with work that is not done.
void erase_stamps(uint8_t *record);

}  // namespace fake
