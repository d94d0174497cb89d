// What is known about CUPTI and driver versions, as data with its source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace replaywatch::tracer {

// What follows when a pair matches.
enum class PairEffect : uint8_t {
  kRefuse,            // no windows at all
  kRefuseGraphLevel,  // kernel windows only
  kNote,              // worth saying, handled here
};

struct KnownPair {
  uint32_t cupti_from, cupti_to;    // cuptiGetVersion, inclusive
  uint32_t driver_from, driver_to;  // cuDriverGetVersion, inclusive; 0 to UINT32_MAX matches any, also an unknown one
  PairEffect effect;
  const char *text;
  const char *source;
};

// The rows that match a CUPTI and the driver of this process; while none is loaded, those for any driver.
std::vector<KnownPair> match_pairs(uint32_t cupti);

// What the first of those with an effect says; empty when there is none.
std::string find_text(uint32_t cupti, PairEffect effect);

// From this API version on CUPTI accepts that no buffer is handed out.
constexpr uint32_t kCuptiAcceptsNoBuffer = 27;

}  // namespace replaywatch::tracer
