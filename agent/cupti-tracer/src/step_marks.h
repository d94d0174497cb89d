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
  static constexpr size_t kNative = 2048;  // slots of `mark`
  static constexpr size_t kShared = 2048;  // slots that a binding writes itself, because a call would cost it more

  // Lock-free; from any thread. The time is kept to 4 ns, with the kind in the two bits below.
  void mark(uint32_t kind, uint64_t unix_ns) {
    const uint64_t at = next_.fetch_add(1, std::memory_order_relaxed);
    ring_[at % kNative].store((unix_ns & ~uint64_t{3}) | (kind & 3), std::memory_order_relaxed);
  }

  std::atomic<uint64_t> *shared() { return &ring_[kNative]; }

  // Marks in [from_ns, to_ns], oldest first.
  std::vector<StepMark> between(uint64_t from_ns, uint64_t to_ns) const;

 private:
  std::atomic<uint64_t> next_{0};
  std::array<std::atomic<uint64_t>, kNative + kShared> ring_{};
};

}  // namespace replaywatch::tracer
