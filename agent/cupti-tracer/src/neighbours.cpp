#include "neighbours.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <cstdio>
#include <memory>

namespace replaywatch::tracer {
namespace {

struct Injector {
  const char *file;  // part of a mapped file's name
  const char *tool;
};

constexpr Injector kInjectors[] = {
    {"libToolsInjection", "NVIDIA Nsight Systems"},
    {"libcuda-injection", "NVIDIA Nsight Compute"},
    {"libnvperf_host_injection", "NVIDIA Nsight Compute"},
    {"libInterceptorInjectionTarget", "NVIDIA Nsight Compute"},
    {"libTreeLauncherTargetInjection", "NVIDIA Nsight Compute"},
    {"libsanitizer-collection", "NVIDIA Compute Sanitizer"},
    {"libparcagpucupti", "parcagpu"},
    {"libgpufl", "GPUFlight"},
    {"libxpu_timer", "DLRover xpu_timer"},
    {"libwprofinj", "wprof"},
};

constexpr const char *kInjectionVariables[] = {"CUDA_INJECTION64_PATH", "REPLAYWATCH_CHAIN_INJECTION",
                                               "NVTX_INJECTION64_PATH"};

std::string variable(const char *name) {
  const char *value = getenv(name);
  return value != nullptr ? value : "";
}

void look_at_environment(std::vector<Neighbour> &found, const std::string &own_path) {
  for (const char *name : kInjectionVariables) {
    const std::string value = variable(name);
    if (value.empty() || value == own_path || value.find("libreplaywatch_tracer") != value.npos) continue;
    // libcupti in NVTX_INJECTION64_PATH only records ranges; any other library there is a profiler's.
    const bool only_ranges = value.find("libcupti.so") != value.npos;
    found.push_back({"a CUDA injection", std::string(name) + "=" + value, !only_ranges});
  }
  if (!variable("NSYS_PROFILING_SESSION_ID").empty())
    found.push_back({"NVIDIA Nsight Systems", "NSYS_PROFILING_SESSION_ID is set", true});
  if (!variable("NV_COMPUTE_PROFILER_PERFWORKS_DIR").empty())
    found.push_back({"NVIDIA Nsight Compute", "NV_COMPUTE_PROFILER_PERFWORKS_DIR is set", true});
  if (const char *daemon = getenv("KINETO_USE_DAEMON"))  // Kineto asks whether it is set, and takes 0 as well
    found.push_back({"dynolog through Kineto", std::string("KINETO_USE_DAEMON=") + daemon, true});
}

void look_at_mappings(std::vector<Neighbour> &found) {
  const std::unique_ptr<FILE, int (*)(FILE *)> maps(fopen("/proc/self/maps", "re"), fclose);
  if (maps == nullptr) return;
  char line[4352];
  std::string last;
  while (fgets(line, sizeof line, maps.get()) != nullptr) {
    const char *path = strchr(line, '/');
    if (path == nullptr || last == path) continue;
    last = path;
    for (const Injector &injector : kInjectors) {
      if (strstr(path, injector.file) == nullptr) continue;
      std::string file(path, strcspn(path, "\n"));
      if (found.empty() || found.back().evidence != file) found.push_back({injector.tool, std::move(file), true});
    }
  }
}

}  // namespace

std::string own_library_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void *>(&own_library_path), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

bool python_is_here() {
  const auto is_initialised = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return is_initialised != nullptr && is_initialised() != 0;
}

std::string find_obstacle(bool injected) {
  if (injected && python_is_here())
    return "Python runs in this process: kernels are traced by the probe in it, with REPLAYWATCH_PROBE_KERNELS=1, where "
           "one is started (python -I, -E and -S start none)";
  for (const Neighbour &tool : find_neighbours(own_library_path()))
    if (tool.yields) return tool.tool + " is in this process (" + tool.evidence + "); windows leave CUPTI to it";
  return {};
}

std::vector<Neighbour> find_neighbours(const std::string &own_path) {
  std::vector<Neighbour> found;
  look_at_environment(found, own_path);
  look_at_mappings(found);
  return found;
}

}  // namespace replaywatch::tracer
