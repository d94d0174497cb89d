// One datagram to the agent: a batch of windows in the wire form of replaywatch.contract.wire, version 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json_writer.h"
#include "tracer.h"

namespace replaywatch::tracer {

// Who sends, as far as a process without Python knows; the agent adds pod, container and model.
struct FrameIdentity {
  std::string node;
  std::string name;
  uint32_t pid = 0;
  uint64_t started_ns = 0;  // makes keys unique across processes that share a pid

  static FrameIdentity of_this_process();
};

// Frames sent and dropped so far in this process.
struct FrameTraffic {
  uint64_t sent = 0;
  uint64_t dropped = 0;
};

// Builds frames; each carries what changed since the frame before.
class FrameBuilder {
 public:
  explicit FrameBuilder(FrameIdentity identity) : identity_(std::move(identity)) {}

  // One frame for each device of the report, or one that says why nothing was seen.
  std::vector<std::string> build(const WindowReport &report, const HelperCost &cost, const FrameTraffic &traffic);

 private:
  std::string frame(const WindowReport &report, const DeviceReport *device, const HelperCost *cost,
                    const FrameTraffic *traffic);
  void write_cost(JsonWriter &json, const HelperCost &cost, const FrameTraffic &traffic);

  FrameIdentity identity_;
  HelperCost last_cost_;
  FrameTraffic last_traffic_;
  uint64_t serial_ = 0;
};

}  // namespace replaywatch::tracer
