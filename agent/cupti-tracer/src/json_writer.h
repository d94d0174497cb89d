// Writes JSON text: compact, always valid UTF-8-clean ASCII, never throws for its content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace replaywatch::tracer {

class JsonWriter {
 public:
  JsonWriter &begin_object(std::string_view key = {});
  JsonWriter &begin_array(std::string_view key = {});
  JsonWriter &end_object();
  JsonWriter &end_array();

  JsonWriter &field(std::string_view key, uint64_t value);
  JsonWriter &field(std::string_view key, int64_t value);
  JsonWriter &field(std::string_view key, double value);
  JsonWriter &field(std::string_view key, bool value);
  JsonWriter &field(std::string_view key, std::string_view value);
  JsonWriter &field(std::string_view key, const char *value) { return field(key, std::string_view(value)); }
  JsonWriter &field(std::string_view key, int32_t value) { return field(key, static_cast<int64_t>(value)); }
  JsonWriter &field(std::string_view key, uint32_t value) { return field(key, static_cast<uint64_t>(value)); }
  JsonWriter &element(std::string_view value);

  // Nothing where the value is 0, the default of the field: the wire form leaves such fields out.
  JsonWriter &count(std::string_view key, uint64_t value) { return value != 0 ? field(key, value) : *this; }

  const std::string &text() const { return text_; }

 private:
  void separate(std::string_view key);
  void quote(std::string_view value);

  std::string text_;
};

}  // namespace replaywatch::tracer
