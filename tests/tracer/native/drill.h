// Drills: small programs that do to the tracer what a serving process does, under sanitizers. Each returns 0 or exits.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

// Against the wire: sockets that are missing, full, dead, restarted.
int drill_agent(const char *socket_path);

// Eager kernels, copies and replays of one graph, until told to stop; moves the fake's clock.
class Work {
 public:
  explicit Work(uint32_t stream);
  void some(uint32_t steps);

 private:
  uint32_t stream_;
  uint32_t graph_;
};

// Threads that launch work and mark steps until the object goes.
class Load {
 public:
  explicit Load(uint32_t threads);
  ~Load();

 private:
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};
