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

// 0, or CUPTI's error. `soname` as the process has it.
extern "C" int detach_arm(const char *soname, uint32_t domain) {
  void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return -1;
  if (!bind(library, "cuptiSubscribe", subscribe) || !bind(library, "cuptiUnsubscribe", unsubscribe) ||
      !bind(library, "cuptiEnableDomain", enable_domain) || !bind(library, "cuptiFinalize", finalize))
    return -2;
  result = -1;
  if (const int32_t r = subscribe(&subscriber, on_call, nullptr)) return r;
  armed = 1;
  return enable_domain(1, subscriber, domain);
}

// -1 while it waits for a call, otherwise what cuptiFinalize returned.
extern "C" int detach_result() { return result; }

extern "C" int detach_now(const char *soname) {
  void *library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr || !bind(library, "cuptiFinalize", finalize)) return -1;
  return finalize();
}
