// The mergeable log-bucket histogram of replaywatch.contract.histogram: Prometheus native histograms, schema 3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace replaywatch::tracer {

// Bucket i holds values in (2**((i-1)/8), 2**(i/8)]; a positive 64-bit integer needs the buckets 0 to 504.
class Histogram {
 public:
  static constexpr size_t kBuckets = 505;

  void add(int64_t value);
  void merge(const Histogram &other);

  uint64_t count() const { return count_; }
  int64_t sum() const { return sum_; }
  uint64_t zero() const { return zero_; }
  uint64_t bucket(size_t index) const { return buckets_[index]; }

  // Index of the bucket of a value of at least 1.
  static size_t bucket_index(int64_t value);

 private:
  uint64_t count_ = 0;
  int64_t sum_ = 0;
  uint64_t zero_ = 0;
  std::array<uint64_t, kBuckets> buckets_{};
};

}  // namespace replaywatch::tracer
