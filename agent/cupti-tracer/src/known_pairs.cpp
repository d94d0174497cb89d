#include "known_pairs.h"

#include "cuda_driver.h"

namespace replaywatch::tracer {
namespace {

constexpr uint32_t kAny = UINT32_MAX;

// cuptiGetVersion: 22 is 12.4 (both updates), 24 is 12.6, 26 is 12.8, 28 is 12.9 update 1; from 13.0 on XXYYZZ.
constexpr KnownPair kPairs[] = {
    {0, 21, 0, kAny, PairEffect::kRefuse,
     "CUPTI older than 12.4 can crash with CUDA Graphs; update CUDA to 12.4 update 1 or later",
     "CUPTI release notes, 12.4 update 1; pytorch issues 101879, 112507"},
    {22, 22, 0, kAny, PairEffect::kRefuseGraphLevel,
     "CUPTI 12.4 before update 1 crashes on copy nodes under graph-level tracing, and the updates cannot be told apart",
     "CUPTI release notes, 12.4 update 1"},
    {0, 130100, 0, kAny, PairEffect::kNote,
     "correlation ids of graph launches can be wrong after the first session; replays are then told apart by their "
     "nodes",
     "CUPTI release notes, 13.1 update 1"},
    {0, 130100, 0, kAny, PairEffect::kNote,
     "one CUPTI subscriber a process: none is taken here, so that torch.profiler keeps its own",
     "CUPTI headers 12.4 to 13.1; measurement M4"},
    {130300, kAny, 1, 13000, PairEffect::kNote,
     "this CUPTI is newer than the driver; records were not checked on such a pair",
     "CUDA minor version compatibility; not measured"},
    {130600, kAny, 0, kAny, PairEffect::kNote,
     "this CUPTI is newer than any whose record layout was checked (12.4 to 13.5)", "CUPTI headers 12.4 to 13.5"},
};

}  // namespace

std::vector<KnownPair> match_pairs(uint32_t cupti) {
  const uint32_t driver = cuda_driver_version();
  std::vector<KnownPair> found;
  for (const KnownPair &pair : kPairs) {
    const bool any_driver = pair.driver_from == 0 && pair.driver_to == kAny;
    const bool driver_matches = any_driver || (driver >= pair.driver_from && driver <= pair.driver_to);
    if (cupti >= pair.cupti_from && cupti <= pair.cupti_to && driver_matches) found.push_back(pair);
  }
  return found;
}

std::string find_text(uint32_t cupti, PairEffect effect) {
  for (const KnownPair &pair : match_pairs(cupti))
    if (pair.effect == effect) return pair.text;
  return {};
}

}  // namespace replaywatch::tracer
