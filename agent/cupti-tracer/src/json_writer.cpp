#include "json_writer.h"

#include <cmath>
#include <cstdio>

namespace replaywatch::tracer {

void JsonWriter::separate(std::string_view key) {
  if (!text_.empty() && text_.back() != '{' && text_.back() != '[') text_ += ',';
  if (key.empty()) return;
  quote(key);
  text_ += ':';
}

void JsonWriter::quote(std::string_view value) {
  text_ += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escaped[8];
      snprintf(escaped, sizeof escaped, "\\u%04x", byte);  // bytes of paths that are no ASCII, one by one
      text_ += escaped;
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

JsonWriter &JsonWriter::begin_object(std::string_view key) {
  separate(key);
  text_ += '{';
  return *this;
}

JsonWriter &JsonWriter::begin_array(std::string_view key) {
  separate(key);
  text_ += '[';
  return *this;
}

JsonWriter &JsonWriter::end_object() {
  text_ += '}';
  return *this;
}

JsonWriter &JsonWriter::end_array() {
  text_ += ']';
  return *this;
}

JsonWriter &JsonWriter::field(std::string_view key, uint64_t value) {
  separate(key);
  text_ += std::to_string(value);
  return *this;
}

JsonWriter &JsonWriter::field(std::string_view key, int64_t value) {
  separate(key);
  text_ += std::to_string(value);
  return *this;
}

JsonWriter &JsonWriter::field(std::string_view key, double value) {
  separate(key);
  char digits[40];
  snprintf(digits, sizeof digits, "%.17g", std::isfinite(value) ? value : 0.0);
  for (char *c = digits; *c != '\0'; ++c)
    if (*c == ',') *c = '.';  // a locale of the watched process may print a comma
  text_ += digits;
  return *this;
}

JsonWriter &JsonWriter::field(std::string_view key, bool value) {
  separate(key);
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter &JsonWriter::field(std::string_view key, std::string_view value) {
  separate(key);
  quote(value);
  return *this;
}

JsonWriter &JsonWriter::element(std::string_view value) {
  separate({});
  quote(value);
  return *this;
}

}  // namespace replaywatch::tracer
