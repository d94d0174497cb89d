#include "kernel_names.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace replaywatch::tracer {
namespace {

constexpr size_t kLongestName = 2048;
constexpr std::string_view kCalibrationKernel = "replaywatch_null";
// The same rule as for recorded traces: "copy" in any case (direct_copy_kernel, triton_poi_fused_copy, Memcpy), but no
// concatenation.
constexpr std::string_view kCopy = "copy", kConcatenation = "catarray";

bool holds(std::string_view text, std::string_view lower_word) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::search(text.begin(), text.end(), lower_word.begin(), lower_word.end(), same) != text.end();
}

}  // namespace

KernelName read_kernel_name(const char *name) {
  KernelName known;
  if (name == nullptr) return known;
  const std::string_view text(name, strnlen(name, kLongestName));
  known.is_calibration = text == kCalibrationKernel;
  known.is_copy = holds(text, kCopy) && !holds(text, kConcatenation);
  return known;
}

KernelName KernelNames::look_up(const char *name) {
  const auto address = reinterpret_cast<uintptr_t>(name);
  Entry &entry = entries_[(address >> 4 ^ address >> 16) % kSlots];
  if (entry.name != name) entry = {name, read_kernel_name(name)};
  return entry.known;
}

void KernelNames::clear() { entries_.fill({}); }

}  // namespace replaywatch::tracer
