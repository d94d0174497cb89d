#include "records.h"

#include <cstring>

namespace fake {
namespace {

constexpr uint32_t kCopy = 1, kSet = 2, kConcurrentKernel = 10, kGraph = 51;

template <typename T>
void put(std::vector<uint8_t> &record, size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof value);
}

// Field by field in the order of the structs in cupti_activity.h; a test holds the tracer's offsets against the
// headers.
void put_kernel(std::vector<uint8_t> &r, const Work &w) {
  put(r, 16, w.start_ns);
  put(r, 24, w.end_ns);
  put(r, 40, w.device);
  put(r, 44, uint32_t{1});
  put(r, 48, w.stream);
  put(r, 92, w.correlation);
  put(r, 104, w.name);
  put(r, 144, w.node);
  put(r, 156, w.graph);
}

void put_copy_or_set(std::vector<uint8_t> &r, const Work &w) {
  if (w.kind == kCopy) put(r, 4, w.copy_kind);
  put(r, 8, w.bytes);
  put(r, 16, w.start_ns);
  put(r, 24, w.end_ns);
  put(r, 32, w.device);
  put(r, 36, uint32_t{1});
  put(r, 40, w.stream);
  put(r, 44, w.correlation);
  put(r, 64, w.node);
  put(r, 72, w.graph);
}

void put_graph(std::vector<uint8_t> &r, const Work &w) {
  put(r, 4, w.correlation);
  put(r, 8, w.start_ns);
  put(r, 16, w.end_ns);
  put(r, 24, w.device);
  put(r, 28, w.graph);
  put(r, 36, w.stream);
  put(r, 48, w.device);
}

}  // namespace

size_t record_size(uint32_t kind, uint32_t version) {
  if (kind == kCopy) return version >= 130400 ? 120 : 88;
  if (kind == kSet) return version >= 130400 ? 104 : 88;
  if (kind == kGraph) return 56;
  if (kind != kConcurrentKernel) return 40;
  if (version >= 130400) return 248;
  if (version >= 130300) return 232;
  if (version >= 130100) return 224;
  return version >= 130000 ? 216 : 208;
}

std::vector<uint8_t> write_record(const Work &w, uint32_t version) {
  std::vector<uint8_t> record(record_size(w.kind, version), 0);
  put(record, 0, w.kind);
  if (w.kind == kConcurrentKernel)
    put_kernel(record, w);
  else if (w.kind == kGraph)
    put_graph(record, w);
  else if (w.kind == kCopy || w.kind == kSet)
    put_copy_or_set(record, w);
  return record;
}

void erase_stamps(uint8_t *record) {
  uint32_t kind = 0;
  std::memcpy(&kind, record, sizeof kind);
  std::memset(record + (kind == kGraph ? 8 : 16), 0, 16);
}

}  // namespace fake
