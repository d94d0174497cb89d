#include "cupti_api.h"

#include <dlfcn.h>

#include "cupti_records.h"

namespace replaywatch::tracer {
namespace {

constexpr const char *kSonames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};

void *find_library() {
  for (const char *name : kSonames)
    if (void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  for (const char *name : kSonames)
    if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

template <typename F>
bool bind(void *library, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

// First name that the library lacks; null when all are there.
const char *bind_all(void *library, CuptiApi &api) {
  if (!bind(library, "cuptiGetVersion", api.get_version)) return "cuptiGetVersion";
  if (!bind(library, "cuptiGetTimestamp", api.get_timestamp)) return "cuptiGetTimestamp";
  if (!bind(library, "cuptiGetResultString", api.get_result_string)) return "cuptiGetResultString";
  if (!bind(library, "cuptiActivityRegisterCallbacks", api.register_callbacks)) return "cuptiActivityRegisterCallbacks";
  if (!bind(library, "cuptiActivityEnable", api.enable)) return "cuptiActivityEnable";
  if (!bind(library, "cuptiActivityDisable", api.disable)) return "cuptiActivityDisable";
  if (!bind(library, "cuptiActivityFlushAll", api.flush_all)) return "cuptiActivityFlushAll";
  if (!bind(library, "cuptiActivityGetNextRecord", api.next_record)) return "cuptiActivityGetNextRecord";
  if (!bind(library, "cuptiActivityGetNumDroppedRecords", api.dropped_records))
    return "cuptiActivityGetNumDroppedRecords";
  return nullptr;
}

}  // namespace

std::string CuptiApi::describe(int32_t result) const {
  const char *text = nullptr;
  if (get_result_string != nullptr) get_result_string(result, &text);
  return std::string(text != nullptr ? text : "CUPTI error") + " (" + std::to_string(result) + ")";
}

std::string load_cupti(CuptiApi &api) {
  void *library = find_library();
  if (library == nullptr) return "no libcupti in this process and none on the library path";
  if (const char *missing = bind_all(library, api)) return std::string("libcupti lacks ") + missing;
  if (const int32_t result = api.get_version(&api.version); result != kCuptiSuccess) {
    return "cuptiGetVersion failed: " + api.describe(result);
  }
  Dl_info info{};
  if (dladdr(reinterpret_cast<void *>(api.get_version), &info) != 0 && info.dli_fname != nullptr)
    api.path = info.dli_fname;
  return {};
}

}  // namespace replaywatch::tracer
