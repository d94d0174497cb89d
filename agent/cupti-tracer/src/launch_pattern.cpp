#include "launch_pattern.h"

#include <algorithm>
#include <map>

namespace replaywatch::tracer {
namespace {

constexpr size_t kFewestReturns = 3;
constexpr double kRegularShare = 0.8;  // of the returns are as far apart as the median
constexpr double kCoveredShare = 0.6;  // of all launches lie between the first and the last return
constexpr uint64_t kFromGraph = uint64_t{1} << 63;  // of a token's id; the rest is the graph's

struct Token {
  uint64_t id;
  uint64_t start_ns;
  uint64_t idle_before_ns;
};

std::vector<Token> tokens_of(const DeviceRecords &work) {
  std::vector<Token> tokens;
  std::vector<bool> seen(work.replays.size(), false);
  uint64_t busy_until = 0;
  for (size_t i = 0; i < work.count; ++i) {
    const Record &r = work[i];
    if (r.flags & kDropped) continue;
    const uint64_t idle = busy_until != 0 && r.start_ns > busy_until ? r.start_ns - busy_until : 0;
    busy_until = std::max(busy_until, r.end_ns);
    const uint32_t replay = work.replay_of[i];
    if (replay == kNoReplay) {
      if (r.is_kernel()) tokens.push_back({r.detail, r.start_ns, idle});
    } else if (!seen[replay]) {
      seen[replay] = true;
      tokens.push_back({kFromGraph | r.graph, r.start_ns, idle});
    }
  }
  return tokens;
}

using Places = std::vector<size_t>;  // positions of one token

// One kernel again and again is no step: a step would be a launch long, and the wait between real steps "long idle".
bool is_one_kernel(uint64_t id, size_t apart) { return apart < 2 && (id & kFromGraph) == 0; }

bool returns_regularly(uint64_t id, const Places &places, size_t tokens) {
  if (places.size() < kFewestReturns) return false;
  std::vector<size_t> apart;
  for (size_t i = 0; i + 1 < places.size(); ++i) apart.push_back(places[i + 1] - places[i]);
  std::nth_element(apart.begin(), apart.begin() + static_cast<long>(apart.size() / 2), apart.end());
  const size_t median = apart[apart.size() / 2];
  if (is_one_kernel(id, median)) return false;
  const size_t slack = std::max<size_t>(2, median / 20);
  const auto regular = std::count_if(apart.begin(), apart.end(), [&](size_t d) {
    return d + slack >= median && d <= median + slack && d * 2 > median;
  });
  return static_cast<double>(regular) >= kRegularShare * static_cast<double>(apart.size()) &&
         static_cast<double>(places.back() - places.front() + median) >= kCoveredShare * static_cast<double>(tokens);
}

// The regular tokens that return as often as the rarest two that agree.
std::vector<const Places *> once_a_step(const std::map<uint64_t, Places> &by_id, size_t tokens) {
  std::vector<const Places *> regular;
  for (const auto &[id, places] : by_id)
    if (returns_regularly(id, places, tokens)) regular.push_back(&places);
  std::sort(regular.begin(), regular.end(), [](const Places *a, const Places *b) { return a->size() < b->size(); });
  const size_t needed = by_id.size() <= 2 ? 1 : 2;
  for (size_t i = 0; i + needed <= regular.size(); ++i) {
    const size_t most = regular[i]->size() + 1;
    if (regular[i + needed - 1]->size() > most) continue;
    std::vector<const Places *> chosen;
    for (size_t k = i; k < regular.size() && regular[k]->size() <= most; ++k) chosen.push_back(regular[k]);
    return chosen;
  }
  return {};
}

uint64_t idle_before(const std::vector<Token> &tokens, const Places &places) {
  uint64_t idle = 0;
  for (const size_t place : places) idle += tokens[place].idle_before_ns;
  return idle / places.size();
}

}  // namespace

std::vector<StepMark> pattern_starts(const DeviceRecords &work) {
  const std::vector<Token> tokens = tokens_of(work);
  std::map<uint64_t, Places> by_id;
  for (size_t i = 0; i < tokens.size(); ++i) by_id[tokens[i].id].push_back(i);
  const auto candidates = once_a_step(by_id, tokens.size());
  if (candidates.empty()) return {};
  // A step begins where the device waited longest for the host.
  const Places *anchor = *std::max_element(candidates.begin(), candidates.end(), [&](const Places *a, const Places *b) {
    const uint64_t x = idle_before(tokens, *a), y = idle_before(tokens, *b);
    return x != y ? x < y : a->front() > b->front();
  });
  std::vector<StepMark> starts;
  for (const size_t place : *anchor) starts.push_back({tokens[place].start_ns, kStepUnknown});
  return starts;
}

}  // namespace replaywatch::tracer
