// A program without Python: a chain of small kernels, replayed as one graph for a while, then launched one by one.
// Prints JSON with exact counts. Every kernel adds one to every cell, so the sum proves how many kernels ran.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

constexpr int kChain = 40, kCells = 1 << 14;

#define CHECK(call)                                                              \
  if (cudaError_t failed = (call); failed != cudaSuccess) {                      \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(failed));         \
    return 1;                                                                    \
  }

__global__ void add_one(unsigned *cells) { cells[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

int launch_chain(unsigned *cells, cudaStream_t stream) {
  for (int i = 0; i < kChain; ++i) add_one<<<kCells / 256, 256, 0, stream>>>(cells);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
  const double each_s = argc > 1 ? std::atof(argv[1]) : 5.0;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 0;  // exact number of steps of both kinds, instead of a time
  unsigned *cells = nullptr;
  cudaStream_t stream;
  CHECK(cudaMalloc(&cells, kCells * sizeof(unsigned)));
  CHECK(cudaMemset(cells, 0, kCells * sizeof(unsigned)));
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  if (launch_chain(cells, stream)) return 1;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&ready, graph, 0));

  long replays = 0, eager = 0;
  double begin = seconds();
  while (rounds ? replays < rounds : seconds() - begin < each_s) {
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaStreamSynchronize(stream));
    ++replays;
  }
  const double replay_us = (seconds() - begin) / replays * 1e6;
  begin = seconds();
  while (rounds ? eager < rounds : seconds() - begin < each_s) {
    if (launch_chain(cells, stream)) return 1;
    CHECK(cudaStreamSynchronize(stream));
    ++eager;
  }
  const double eager_us = (seconds() - begin) / eager * 1e6;
  unsigned sum = 0;
  CHECK(cudaMemcpy(&sum, cells, sizeof(sum), cudaMemcpyDeviceToHost));
  const bool is_right = sum == static_cast<unsigned>((replays + eager) * kChain);
  std::printf("{\"replays\": %ld, \"eager_steps\": %ld, \"replay_us\": %.3f, \"eager_us\": %.3f, \"is_right\": %s}\n",
              replays, eager, replay_us, eager_us, is_right ? "true" : "false");
  return is_right ? 0 : 1;
}
