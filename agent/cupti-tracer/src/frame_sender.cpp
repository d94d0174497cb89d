#include "frame_sender.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace replaywatch::tracer {

FrameSender::~FrameSender() { close_socket(); }

void FrameSender::close_socket() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

bool FrameSender::connect_once() {
  if (socket_ >= 0) return true;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.empty() || path_.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return false;
  if (connect(socket_, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0) return true;
  close_socket();
  return false;
}

bool FrameSender::send(const std::string &frame) {
  for (int attempt = 0; attempt < 2 && connect_once(); ++attempt) {
    if (::send(socket_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
      ++sent_;
      return true;
    }
    if (errno == EAGAIN || errno == EMSGSIZE || errno == ENOBUFS) break;
    close_socket();  // the agent was restarted: its new socket is found by the same path
  }
  ++dropped_;
  return false;
}

}  // namespace replaywatch::tracer
