"""Stands in for the dispatcher of 0.10.1 to 0.11, which is asked with a descriptor."""

from vllm.config.compilation import CUDAGraphMode


class CudagraphDispatcher:
    """Keys are sizes; no size above the largest is ever found."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self.cudagraph_mode = vllm_config.compilation_config.cudagraph_mode
        self.keys_initialized = True

    def dispatch(self, batch_descriptor, use_cascade_attn=False):
        if batch_descriptor.num_tokens not in self.vllm_config.compilation_config.cudagraph_capture_sizes:
            return CUDAGraphMode.NONE, None
        full = self.cudagraph_mode.decode_mode() == CUDAGraphMode.FULL
        if full and batch_descriptor.uniform_decode and not use_cascade_attn:
            return CUDAGraphMode.FULL, batch_descriptor
        return CUDAGraphMode.PIECEWISE, batch_descriptor
