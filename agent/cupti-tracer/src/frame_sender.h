// Sends datagrams to the agent's unix socket and never waits for it.
#pragma once

#include <cstdint>
#include <string>

namespace replaywatch::tracer {

class FrameSender {
 public:
  explicit FrameSender(std::string path) : path_(std::move(path)) {}
  ~FrameSender();
  FrameSender(const FrameSender &) = delete;
  FrameSender &operator=(const FrameSender &) = delete;

  // False, and counted, when the agent is not there, its socket is full, or the frame is too long for a datagram.
  bool send(const std::string &frame);

  uint64_t sent() const { return sent_; }
  uint64_t dropped() const { return dropped_; }

 private:
  bool connect_once();
  void close_socket();

  std::string path_;
  int socket_ = -1;
  uint64_t sent_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace replaywatch::tracer
