// The tracer in a process without Python, loaded by the CUDA driver through CUDA_INJECTION64_PATH.
#pragma once

namespace replaywatch::tracer {

// Calls the injection that stood in the variable before (REPLAYWATCH_CHAIN_INJECTION), then starts windows that are
// sent to the agent. Runs inside cuInit: makes no CUDA call. Without an agent's socket nothing starts, nor where Python
// runs (its kernels are traced by the probe, where it was asked to), nor beside a tool that may use CUPTI, such as the
// one that stood in the variable before. Why not is told once, except where a probe speaks.
//
// REPLAYWATCH_SOCKET             path of the agent's datagram socket
// REPLAYWATCH_CHAIN_INJECTION    library whose InitializeInjection is called first
// REPLAYWATCH_TRACE_PERIOD_MS    time between windows, 60000
// REPLAYWATCH_TRACE_WINDOW_MS    length of a window, 100
// REPLAYWATCH_TRACE_FIRST_MS     time to the first window, 3000
// REPLAYWATCH_GRAPH_TRACE=1      graph-level records instead of kernel windows
void begin_injection();

// A probe runs in this process and speaks for it: an injection from now on says nothing.
void leave_to_probe();

}  // namespace replaywatch::tracer
