// Buffers on their way: requested on the launching thread, filled, given back on a worker or on the flushing thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fake_cupti.h"

namespace fake {

[[noreturn]] void broken_rule(const char *rule);

struct Buffer {
  uint8_t *data = nullptr;
  size_t size = 0, used = 0;
  uint64_t done_at_ns = 0;                           // when the last record is complete
  std::vector<std::pair<size_t, uint64_t>> records;  // offset, completion
  FakeCompleted completed = nullptr;                 // of the client that had the callbacks when it was requested
};

class Buffers {
 public:
  Buffers();

  void reset(uint32_t version);
  void set_clock(uint64_t now_ns);
  uint64_t now_ns();
  void register_callbacks(FakeRequested requested, FakeCompleted completed);
  bool registered();
  void add(const std::vector<uint8_t> &record, uint64_t done_at_ns);
  void flush(bool forced);
  uint64_t take_dropped();
  uint64_t requested() { return requests_; }

 private:
  void work();
  void deliver(Buffer buffer, bool forced);

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t version_ = 130001;
  uint64_t now_ns_ = 0;
  FakeRequested on_request_ = nullptr;
  FakeCompleted on_complete_ = nullptr;
  std::map<std::thread::id, Buffer> filling_;
  std::vector<Buffer> full_;
  std::set<uint8_t *> outstanding_;
  uint64_t dropped_ = 0;
  uint64_t requests_ = 0;
};

}  // namespace fake
