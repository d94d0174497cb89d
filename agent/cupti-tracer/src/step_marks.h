// Where steps begin, as told by hooks in the watched process: a ring that is written on the launch path.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replaywatch::tracer {

enum StepKind : uint8_t { kStepUnknown = 0, kStepFull = 1, kStepPiecewise = 2, kStepEager = 3 };

struct StepMark {
  uint64_t unix_ns;
  StepKind kind;
};

class StepMarks {
 public:
  static constexpr size_t kCapacity = 4096;

  // Lock-free; from any thread. The time is kept to 4 ns, beside the kind.
  void mark(uint32_t kind, uint64_t unix_ns) {
    const uint64_t at = next_.fetch_add(1, std::memory_order_relaxed);
    ring_[at % kCapacity].store((unix_ns & ~uint64_t{3}) | (kind & 3), std::memory_order_relaxed);
  }

  // Marks in [from_ns, to_ns], oldest first.
  std::vector<StepMark> between(uint64_t from_ns, uint64_t to_ns) const;

 private:
  std::atomic<uint64_t> next_{0};
  std::array<std::atomic<uint64_t>, kCapacity> ring_{};
};

}  // namespace replaywatch::tracer
