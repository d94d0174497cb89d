// Other tools in this process that would have to share CUPTI.
#pragma once

#include <string>
#include <vector>

namespace replaywatch::tracer {

struct Neighbour {
  std::string tool;
  std::string evidence;  // the variable or the mapped library that shows it
  bool yields;           // windows must not run beside it
};

// Looks at the environment and the libraries mapped into this process. `own_path` is this library: it is no neighbour.
std::vector<Neighbour> find_neighbours(const std::string &own_path);

// The file that holds this code; empty when unknown.
std::string own_library_path();

}  // namespace replaywatch::tracer
