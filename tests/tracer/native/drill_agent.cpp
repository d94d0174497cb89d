#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "drill.h"
#include "fake_cupti.h"
#include "rw_tracer.h"

namespace {

int listen_at(const char *path, int receive_bytes) {
  unlink(path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  const int agent = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  setsockopt(agent, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  EXPECT(bind(agent, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
  return agent;
}

std::string receive(int agent) {
  static char frame[1 << 18];
  timeval patience{5, 0};
  setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const ssize_t length = recv(agent, frame, sizeof frame, 0);
  EXPECT(length > 0);
  return {frame, static_cast<size_t>(length)};
}

bool holds(const std::string &text, const char *part) { return text.find(part) != text.npos; }

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// The next frame that holds a text.
std::string frame_with(int agent, const char *part) {
  for (int i = 0; i < 200; ++i) {
    std::string frame = receive(agent);
    if (holds(frame, part)) return frame;
  }
  EXPECT(!"a frame with what was asked for");
  return {};
}

}  // namespace

int drill_agent(const char *path) {
  setenv("REPLAYWATCH_SOCKET", path, 1);
  setenv("REPLAYWATCH_TRACE_PERIOD_MS", "10", 1);
  setenv("REPLAYWATCH_TRACE_WINDOW_MS", "5", 1);
  setenv("REPLAYWATCH_TRACE_FIRST_MS", "1", 1);
  Load load(1);
  EXPECT(InitializeInjection() == 1);  // nobody listens yet
  rest(60);
  int agent = listen_at(path, 1 << 20);
  const std::string first = frame_with(agent, "\"total_kernels\"");
  EXPECT(holds(first, "{\"v\":1,\"key\":\"") && holds(first, "\"origin\":\"probe\""));
  printf("%s\n", first.c_str());
  close(agent);  // the agent dies
  rest(60);
  agent = listen_at(path, 2048);  // comes back with a socket that is soon full
  rest(150);
  frame_with(agent, "\"frames_dropped\"");
  close(agent);
  unlink(path);
  EXPECT(rw_tracer_stop() == RW_OK);
  return 0;
}
