#include "record_reader.h"

#include "cupti_records.h"

namespace replaywatch::tracer {
namespace {

Record kernel_of(const uint8_t *at) {
  namespace r = kernel_record;
  return {field_at<uint64_t>(at, r::kStart),
          field_at<uint64_t>(at, r::kEnd),
          field_at<uint64_t>(at, r::kName),
          field_at<uint64_t>(at, r::kGraphNode),
          field_at<uint32_t>(at, r::kCorrelation),
          field_at<uint32_t>(at, r::kStream),
          field_at<uint32_t>(at, r::kGraph),
          static_cast<uint16_t>(field_at<uint32_t>(at, r::kDevice)),
          kRecordKernel,
          0};
}

Record copy_of(const uint8_t *at) {
  namespace r = memcpy_record;
  const auto way = field_at<uint8_t>(at, r::kCopyKind);
  const bool to_device = way == kCopyHostToDevice || way == kCopyDeviceToDevice || way == kCopyPeerToPeer;
  return {field_at<uint64_t>(at, r::kStart),
          field_at<uint64_t>(at, r::kEnd),
          field_at<uint64_t>(at, r::kBytes),
          field_at<uint64_t>(at, r::kGraphNode),
          field_at<uint32_t>(at, r::kCorrelation),
          field_at<uint32_t>(at, r::kStream),
          field_at<uint32_t>(at, r::kGraph),
          static_cast<uint16_t>(field_at<uint32_t>(at, r::kDevice)),
          kRecordCopy,
          static_cast<uint8_t>(to_device ? kIsInputCopy : 0)};
}

Record set_of(const uint8_t *at) {
  namespace r = memset_record;
  return {field_at<uint64_t>(at, r::kStart),
          field_at<uint64_t>(at, r::kEnd),
          field_at<uint64_t>(at, r::kBytes),
          field_at<uint64_t>(at, r::kGraphNode),
          field_at<uint32_t>(at, r::kCorrelation),
          field_at<uint32_t>(at, r::kStream),
          field_at<uint32_t>(at, r::kGraph),
          static_cast<uint16_t>(field_at<uint32_t>(at, r::kDevice)),
          kRecordSet,
          0};
}

// Device fields are INT_MAX where the graph starts or ends on the host; then the other end says which device it is.
Record graph_of(const uint8_t *at) {
  namespace r = graph_record;
  const auto first = field_at<uint32_t>(at, r::kDevice);
  const auto device = first < 0x7fffffffu ? first : field_at<uint32_t>(at, r::kEndDevice);
  return {field_at<uint64_t>(at, r::kStart),
          field_at<uint64_t>(at, r::kEnd),
          0,
          0,
          field_at<uint32_t>(at, r::kCorrelation),
          field_at<uint32_t>(at, r::kStream),
          field_at<uint32_t>(at, r::kGraph),
          static_cast<uint16_t>(device < 0x7fffffffu ? device : 0),
          kRecordGraph,
          0};
}

}  // namespace

void RecordReader::reset(uint64_t begin) {
  counts_ = {};
  begin_ = begin;
  names_.clear();
  calibration_.clear();
}

void RecordReader::read_one(const uint8_t *at, RecordStore &store) {
  const auto kind = field_at<uint32_t>(at, 0);
  Record record;
  if (kind == kConcurrentKernel || kind == kKernel) {
    record = kernel_of(at);
    const KernelName name = names_.look_up(field_at<const char *>(at, kernel_record::kName));
    if (name.is_calibration) {
      if (calibration_.size() < kMaxCalibration) calibration_.push_back(record);
      return;
    }
    if (name.is_copy) record.flags |= kIsInputCopy;
    ++counts_.kernels;
    counts_.own_kernels += record.start_ns >= begin_;
  } else if (kind == kMemcpy) {
    record = copy_of(at);
  } else if (kind == kMemset) {
    record = set_of(at);
  } else if (kind == kGraphTrace) {
    record = graph_of(at);
  } else if (kind != kOverhead) {
    ++counts_.foreign_records;
    counts_.foreign_kind = kind;
    return;
  } else {
    return;
  }
  ++counts_.records;
  if (!store.add(record)) ++counts_.store_full;
}

void RecordReader::read(const CuptiApi &api, uint8_t *buffer, size_t valid_size, RecordStore &store) {
  uint8_t *record = nullptr;
  while (true) {
    const int32_t result = api.next_record(buffer, valid_size, &record);
    if (result == kCuptiMaxLimitReached) return;
    if (result != kCuptiSuccess || record == nullptr) {
      ++counts_.bad_buffers;
      return;
    }
    read_one(record, store);
  }
}

}  // namespace replaywatch::tracer
