// Turns buffers that CUPTI filled into records of the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cupti_api.h"
#include "kernel_names.h"
#include "record_store.h"

namespace replaywatch::tracer {

// What reading met beside records.
struct ReadCounts {
  uint64_t records = 0;
  uint64_t kernels = 0;          // of the records
  uint64_t own_kernels = 0;      // of those, that began in this window; CUPTI may still bring some of the one before
  uint64_t store_full = 0;       // read, but no room in the store
  uint64_t foreign_records = 0;  // kinds that were never enabled here: another CUPTI client is at work
  uint32_t foreign_kind = 0;     // the kind of the last of them
  uint64_t bad_buffers = 0;      // buffers that CUPTI itself could not walk
};

class RecordReader {
 public:
  // All records of one buffer; kernels of the calibration go into `calibration` instead of the store.
  void read(const CuptiApi &api, uint8_t *buffer, size_t valid_size, RecordStore &store);

  // A window begins, at a time on CUPTI's clock.
  void reset(uint64_t begin);

  const ReadCounts &counts() const { return counts_; }
  std::vector<Record> &calibration() { return calibration_; }

 private:
  void read_one(const uint8_t *record, RecordStore &store);

  static constexpr size_t kMaxCalibration = 8192;
  ReadCounts counts_;
  uint64_t begin_ = 0;
  KernelNames names_;
  std::vector<Record> calibration_;
};

}  // namespace replaywatch::tracer
