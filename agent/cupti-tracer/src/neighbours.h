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

// Why windows must leave CUPTI alone, in a sentence; empty when nothing stands in their way. To be asked before each
// window: tools come late. Windows of the injection (`injected`) also leave a process to the probe where Python runs in
// it: only the probe knows whether kernels were asked for, and only it stands beside torch.profiler.
std::string find_obstacle(bool injected);

// Whether an interpreter of Python runs in this process.
bool python_is_here();

// The file that holds this code; empty when unknown.
std::string own_library_path();

}  // namespace replaywatch::tracer
