// Texts across the C border.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace replaywatch::tracer {

// Copies a text with its end; the length, or the negative length that is needed.
inline int64_t copy_out(const std::string &text, char *buffer, size_t capacity) {
  const auto length = static_cast<int64_t>(text.size());
  if (buffer == nullptr || text.size() + 1 > capacity) return -(length + 1);
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return length;
}

// Copies as much of a message as fits.
inline void copy_message(const std::string &text, char *buffer, size_t capacity) {
  if (buffer == nullptr || capacity == 0) return;
  const size_t length = text.size() < capacity - 1 ? text.size() : capacity - 1;
  std::memcpy(buffer, text.c_str(), length);
  buffer[length] = '\0';
}

}  // namespace replaywatch::tracer
