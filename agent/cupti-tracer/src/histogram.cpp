#include "histogram.h"

#include <algorithm>
#include <cmath>

namespace replaywatch::tracer {
namespace {

// 2**(i/8 - 1): upper bounds of the eight buckets inside one doubling, bit for bit those that Python computes.
constexpr double kBounds[8] = {
    0x1.0000000000000p-1, 0x1.172b83c7d517bp-1, 0x1.306fe0a31b715p-1, 0x1.4bfdad5362a27p-1,
    0x1.6a09e667f3bcdp-1, 0x1.8ace5422aa0dbp-1, 0x1.ae89f995ad3adp-1, 0x1.d5818dcfba487p-1,
};

}  // namespace

size_t Histogram::bucket_index(int64_t value) {
  int exponent = 0;
  const double mantissa = std::frexp(static_cast<double>(value), &exponent);
  const auto inside = std::lower_bound(std::begin(kBounds), std::end(kBounds), mantissa) - std::begin(kBounds);
  return static_cast<size_t>(inside + (exponent - 1) * 8);
}

void Histogram::add(int64_t value) {
  ++count_;
  if (value <= 0) {
    ++zero_;
    return;
  }
  sum_ += value;
  ++buckets_[bucket_index(value)];
}

void Histogram::merge(const Histogram &other) {
  count_ += other.count_;
  sum_ += other.sum_;
  zero_ += other.zero_;
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
}

}  // namespace replaywatch::tracer
