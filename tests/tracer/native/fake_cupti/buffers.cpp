#include "buffers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "records.h"

namespace fake {
namespace {

constexpr size_t kSmallestBuffer = 1024;
constexpr uint32_t kBearsNoBuffer = 27;

thread_local bool in_callback = false;

}  // namespace

void broken_rule(const char *rule) {
  fprintf(stderr, "fake CUPTI: %s\n", rule);
  fflush(stderr);
  abort();
}

Buffers::Buffers() {
  std::thread([this] { work(); }).detach();
}

void Buffers::reset(uint32_t version) {
  std::lock_guard<std::mutex> lock(mutex_);
  version_ = version;
  on_request_ = nullptr;
  on_complete_ = nullptr;
  filling_.clear();
  full_.clear();
  outstanding_.clear();
  dropped_ = requests_ = 0;
}

void Buffers::set_clock(uint64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  now_ns_ = now_ns;
  changed_.notify_all();
}

uint64_t Buffers::now_ns() {
  std::lock_guard<std::mutex> lock(mutex_);
  return now_ns_;
}

void Buffers::register_callbacks(FakeRequested requested, FakeCompleted completed) {
  std::lock_guard<std::mutex> lock(mutex_);
  on_request_ = requested;
  on_complete_ = completed;
}

bool Buffers::registered() {
  std::lock_guard<std::mutex> lock(mutex_);
  return on_request_ != nullptr;
}

void Buffers::add(const std::vector<uint8_t> &record, uint64_t done_at_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  Buffer *buffer = &filling_[std::this_thread::get_id()];
  if (buffer->data != nullptr && buffer->used + record.size() > buffer->size) {
    full_.push_back(std::move(*buffer));
    *buffer = {};
    changed_.notify_all();
  }
  if (buffer->data == nullptr) {
    const FakeRequested request = on_request_;
    ++requests_;
    lock.unlock();
    Buffer fresh;
    size_t max_records = 0;
    in_callback = true;
    request(&fresh.data, &fresh.size, &max_records);
    in_callback = false;
    lock.lock();
    buffer = &filling_[std::this_thread::get_id()];
    if (fresh.data == nullptr) {
      if (version_ < kBearsNoBuffer) broken_rule("no buffer was handed out, which crashes before API version 27");
      ++dropped_;
      return;
    }
    if (reinterpret_cast<uintptr_t>(fresh.data) % 8 != 0) broken_rule("a buffer is not aligned to 8 bytes");
    if (fresh.size < kSmallestBuffer) broken_rule("a buffer is too small for records");
    if (!outstanding_.insert(fresh.data).second) broken_rule("a buffer was handed out twice");
    *buffer = std::move(fresh);
  }
  std::memcpy(buffer->data + buffer->used, record.data(), record.size());
  buffer->records.emplace_back(buffer->used, done_at_ns);
  buffer->used += record.size();
  buffer->done_at_ns = std::max(buffer->done_at_ns, done_at_ns);
}

void Buffers::deliver(Buffer buffer, bool forced) {
  FakeCompleted complete = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    outstanding_.erase(buffer.data);
    complete = on_complete_;
    if (forced)
      for (const auto &[offset, done] : buffer.records)
        if (done > now_ns_) erase_stamps(buffer.data + offset);
  }
  in_callback = true;
  complete(nullptr, 0, buffer.data, buffer.size, buffer.used);
  in_callback = false;
}

void Buffers::flush(bool forced) {
  if (in_callback) broken_rule("cuptiActivityFlushAll was called from a buffer callback");
  std::vector<Buffer> ready;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto is_ready = [&](const Buffer &b) { return b.used != 0 && (forced || b.done_at_ns <= now_ns_); };
    for (auto it = filling_.begin(); it != filling_.end();) {
      if (is_ready(it->second)) {
        ready.push_back(std::move(it->second));
        it = filling_.erase(it);
      } else {
        ++it;
      }
    }
    for (auto it = full_.begin(); it != full_.end();) {
      if (is_ready(*it)) {
        ready.push_back(std::move(*it));
        it = full_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (Buffer &buffer : ready) deliver(std::move(buffer), forced);
}

// CUPTI's own thread: gives back full buffers whose records are all complete.
void Buffers::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    size_t at = 0;
    while (at < full_.size() && full_[at].done_at_ns > now_ns_) ++at;
    if (at == full_.size()) {
      changed_.wait(lock);
      continue;
    }
    Buffer buffer = std::move(full_[at]);
    full_.erase(full_.begin() + static_cast<long>(at));
    lock.unlock();
    deliver(std::move(buffer), false);
    lock.lock();
  }
}

uint64_t Buffers::take_dropped() {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t dropped = dropped_;
  dropped_ = 0;
  return dropped;
}

}  // namespace fake
