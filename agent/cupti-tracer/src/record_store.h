// The records of one window in one bounded table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace replaywatch::tracer {

enum RecordKind : uint8_t { kRecordKernel, kRecordCopy, kRecordSet, kRecordGraph };

enum RecordFlag : uint8_t {
  kIsInputCopy = 1,  // writes into device memory: a copy, or a kernel whose name says copy
  kDropped = 2,
};

// One piece of device work. 48 bytes, so that a window of 250,000 records stays within 12 MB.
struct Record {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t detail;  // kernel: identity of its name; copy and set: bytes
  uint64_t graph_node;
  uint32_t correlation;
  uint32_t stream;
  uint32_t graph;
  uint16_t device;
  RecordKind kind;
  uint8_t flags;

  bool in_graph() const { return graph != 0 || graph_node != 0; }
  bool is_kernel() const { return kind == kRecordKernel; }
  uint64_t duration_ns() const { return end_ns - start_ns; }
};
static_assert(sizeof(Record) == 48);

class RecordStore {
 public:
  static constexpr size_t kCapacity = 1u << 18;

  bool map();
  // False when full; the record is not kept then.
  bool add(const Record &record);
  // Forgets all records and gives their pages back.
  void clear();

  Record *begin() { return records_; }
  Record *end() { return records_ + size_; }
  size_t size() const { return size_; }
  bool nearly_full() const { return size_ > kCapacity - kCapacity / 8; }

 private:
  Record *records_ = nullptr;
  size_t size_ = 0;
};

}  // namespace replaywatch::tracer
