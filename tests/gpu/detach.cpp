// Detaches CUPTI from a process in the one place where its documentation recommends it: at the exit of a CUDA call.
// Own declarations of the few calls, as in agent/cupti-tracer/src/cupti_api.h; for tests/gpu/detach.py.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>

namespace {

using Callback = void (*)(void *, uint32_t, uint32_t, const void *);
int32_t (*subscribe)(void **, Callback, void *);
int32_t (*unsubscribe)(void *);
int32_t (*enable_domain)(uint32_t, void *, uint32_t);
int32_t (*finalize)();
int32_t (*flush)(uint32_t);
void *subscriber;
std::atomic<int> armed{0}, result{-1};

// First member of CUpti_CallbackData: 0 at the entry of the call, 1 at its exit.
void on_call(void *, uint32_t, uint32_t, const void *data) {
  if (*static_cast<const uint32_t *>(data) != 1) return;
  int expected = 1;
  if (!armed.compare_exchange_strong(expected, 0)) return;
  unsubscribe(subscriber);
  result = finalize();
}

template <typename F>
bool bind(void *library, const char *name, F &function) {
  return (function = reinterpret_cast<F>(dlsym(library, name))) != nullptr;
}

}  // namespace

// Takes the subscription. 0, or CUPTI's error. `soname` as the process has it.
extern "C" int detach_subscribe(const char *soname) {
  void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return -1;
  if (!bind(library, "cuptiSubscribe", subscribe) || !bind(library, "cuptiUnsubscribe", unsubscribe) ||
      !bind(library, "cuptiEnableDomain", enable_domain) || !bind(library, "cuptiFinalize", finalize) ||
      !bind(library, "cuptiActivityFlushAll", flush))
    return -2;
  return subscribe(&subscriber, on_call, nullptr);
}

// Detaches at the exit of the next call of these domains (a bit for each). 0, or CUPTI's error.
extern "C" int detach_arm(uint32_t domains) {
  result = -1;
  flush(0);
  for (uint32_t domain = 1; domain <= 2; ++domain)
    if (domains & (1u << domain))
      if (const int32_t r = enable_domain(1, subscriber, domain)) return r;
  armed = 1;
  return 0;
}

// -1 while it waits for a call, otherwise what cuptiFinalize returned.
extern "C" int detach_result() { return result; }

extern "C" int detach_now(const char *soname) {
  void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr || !bind(library, "cuptiFinalize", finalize)) return -1;
  return finalize();
}
