// Reports as JSON, with the field names and omissions of replaywatch.contract.wire.
#pragma once

#include "device_report.h"
#include "json_writer.h"

namespace replaywatch::tracer {

void write_histogram(JsonWriter &json, std::string_view key, const Histogram &histogram);
// "traced": {...}
void write_traced(JsonWriter &json, const DeviceReport &report, uint64_t dropped_elsewhere);
// "timing": {...}
void write_timing(JsonWriter &json, const WindowTiming &timing);
// {"device": ..., "traced": ..., "timing": ..., ...}: one device as the Python binding reads it
void write_device(JsonWriter &json, const DeviceReport &report, uint64_t dropped_elsewhere);

}  // namespace replaywatch::tracer
