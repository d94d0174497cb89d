"""Stands in for the graph manager of the second runner."""

from dataclasses import dataclass

from vllm.config.compilation import CUDAGraphMode


@dataclass(frozen=True)
class BatchExecutionDescriptor:
    """Which graph a batch runs in."""

    cg_mode: CUDAGraphMode
    num_tokens: int
    num_reqs: int | None = None


class CudaGraphManager:
    """Full graphs for uniform batches of the decode length, piecewise ones for others."""

    def __init__(self, vllm_config, mode=None, decode_query_len=1):
        self.vllm_config = vllm_config
        self.compilation_config = vllm_config.compilation_config
        self.cudagraph_mode = mode or vllm_config.compilation_config.cudagraph_mode
        self.decode_query_len = decode_query_len
        self._graphs_captured = False
        self.questions = 0

    def dispatch(self, num_reqs, num_tokens, uniform_token_count, num_active_loras):
        self.questions += 1
        sizes = [s for s in self.compilation_config.cudagraph_capture_sizes if s >= num_tokens]
        decode = uniform_token_count == self.decode_query_len
        mode = self.cudagraph_mode.decode_mode() if decode else self.cudagraph_mode.mixed_mode()
        if not self._graphs_captured or not sizes or num_active_loras:
            mode = CUDAGraphMode.NONE
        return BatchExecutionDescriptor(mode, num_tokens if mode == CUDAGraphMode.NONE else min(sizes), num_reqs)


class ModelCudaGraphManager(CudaGraphManager):
    """The target model's."""
