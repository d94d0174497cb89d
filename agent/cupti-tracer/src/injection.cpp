#include "injection.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <string>

#include "frame.h"
#include "frame_sender.h"
#include "neighbours.h"
#include "process_events.h"
#include "tracer.h"

namespace replaywatch::tracer {
namespace {

constexpr uint32_t kPeriodMs = 60'000, kWindowMs = 100, kFirstMs = 3'000;
constexpr uint32_t kGraphLevelWindowMs = 5'000;

std::string variable(const char *name) {
  const char *value = getenv(name);
  return value != nullptr ? value : "";
}

uint32_t milliseconds(const char *name, uint32_t otherwise, uint32_t most) {
  const std::string text = variable(name);
  char *end = nullptr;
  const unsigned long value = strtoul(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value == 0 || value > most) return otherwise;
  return static_cast<uint32_t>(value);
}

void call_chained() {
  const std::string path = variable("REPLAYWATCH_CHAIN_INJECTION");
  if (path.empty() || path == own_library_path()) return;
  void *library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) return;
  if (auto *initialise = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))) initialise();
}

// Everything that leaves; lives as long as the process.
class Outlet {
 public:
  explicit Outlet(std::string path) : sender_(std::move(path)), builder_(FrameIdentity::of_this_process()) {}

  void send(const WindowReport &report, const HelperCost &cost) {
    for (const std::string &frame : builder_.build(report, cost, {sender_.sent(), sender_.dropped()}))
      sender_.send(frame);
  }

 private:
  FrameSender sender_;
  FrameBuilder builder_;
};

// Whether the probe of this process says what is seen of it, and what is not.
std::atomic<bool> g_probe_speaks{false};

std::string start_windows(Tracer &tracer, const Tracer::Sink &sink) {
  std::string why = find_obstacle(true);
  if (why.empty()) tracer.open(why);
  const bool graph_level = variable("REPLAYWATCH_GRAPH_TRACE") == "1";
  if (why.empty() && graph_level) tracer.enable_graph_level(why);
  if (!why.empty()) return why;
  watch_process();
  const uint32_t window_ms =
      milliseconds("REPLAYWATCH_TRACE_WINDOW_MS", graph_level ? kGraphLevelWindowMs : kWindowMs, 60'000);
  const uint32_t period_ms =
      milliseconds("REPLAYWATCH_TRACE_PERIOD_MS", graph_level ? window_ms : kPeriodMs, 86'400'000);
  tracer.start(period_ms, window_ms, milliseconds("REPLAYWATCH_TRACE_FIRST_MS", kFirstMs, 86'400'000), sink);
  return {};
}

}  // namespace

void leave_to_probe() { g_probe_speaks = true; }

void begin_injection() {
  call_chained();
  const std::string socket = variable("REPLAYWATCH_SOCKET");
  if (socket.empty() || g_probe_speaks) return;
  auto outlet = std::make_shared<Outlet>(socket);
  const std::string why = start_windows(
      Tracer::instance(), [outlet](const WindowReport &report, const HelperCost &cost) { outlet->send(report, cost); });
  if (why.empty()) return;
  WindowReport refused;
  refused.refused = why;
  outlet->send(refused, {});
}

}  // namespace replaywatch::tracer
