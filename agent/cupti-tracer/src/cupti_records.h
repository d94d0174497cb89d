// The CUPTI activity records that are read here, as offsets: they are the same from CUPTI 12.4 to 13.5, while struct
// names and sizes are not. tests/tracer holds every constant against NVIDIA's own headers of several releases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace replaywatch::tracer {

// CUpti_ActivityKind
enum ActivityKind : uint32_t {
  kMemcpy = 1,
  kMemset = 2,
  kKernel = 3,
  kDriverApi = 4,
  kRuntimeApi = 5,
  kConcurrentKernel = 10,
  kOverhead = 17,
  kGraphTrace = 51,
};

// CUpti_ActivityMemcpyKind, as far as it matters: where the bytes land.
enum CopyKind : uint8_t { kCopyHostToDevice = 1, kCopyDeviceToDevice = 8, kCopyPeerToPeer = 10 };

// CUptiResult
enum CuptiResult : int32_t {
  kCuptiSuccess = 0,
  kCuptiMaxLimitReached = 12,
  kCuptiNotCompatible = 14,
  kCuptiNotInitialized = 15,
  kCuptiMultipleSubscribers = 39,
};

namespace kernel_record {  // CUpti_ActivityKernel9 (12.4) to CUpti_ActivityKernel13 (13.5)
constexpr size_t kStart = 16, kEnd = 24, kDevice = 40, kStream = 48, kCorrelation = 92, kName = 104;
constexpr size_t kGraphNode = 144, kGraph = 156;
}  // namespace kernel_record

namespace memcpy_record {  // CUpti_ActivityMemcpy5 to CUpti_ActivityMemcpy7
constexpr size_t kCopyKind = 4, kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kStream = 40, kCorrelation = 44;
constexpr size_t kGraphNode = 64, kGraph = 72;
}  // namespace memcpy_record

namespace memset_record {  // CUpti_ActivityMemset4 and CUpti_ActivityMemset5
constexpr size_t kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kStream = 40, kCorrelation = 44;
constexpr size_t kGraphNode = 64, kGraph = 72;
}  // namespace memset_record

namespace graph_record {  // CUpti_ActivityGraphTrace2
constexpr size_t kCorrelation = 4, kStart = 8, kEnd = 16, kDevice = 24, kGraph = 28, kStream = 36, kEndDevice = 48;
}  // namespace graph_record

// One field of a record; records are only 8-byte aligned by promise, so fields are copied out.
template <typename T>
T field_at(const uint8_t *record, size_t offset) {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

}  // namespace replaywatch::tracer
