"""Stands in for the dispatcher of the first runner, signature of 0.16 to 0.33."""

from types import SimpleNamespace

from vllm.config.compilation import CUDAGraphMode


class CudagraphDispatcher:
    """Keys are sizes; decode uses full graphs where the mode has them."""

    def __init__(self, vllm_config, mode=None):
        self.vllm_config = vllm_config
        self.compilation_config = vllm_config.compilation_config
        self.cudagraph_mode = mode or vllm_config.compilation_config.cudagraph_mode
        self.keys_initialized = True

    def dispatch(
        self, num_tokens, uniform_decode=False, has_lora=False, num_active_loras=0, valid_modes=None, invalid_modes=None
    ):
        allowed = set(valid_modes or {CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL})
        allowed -= set(invalid_modes or ())
        sizes = [s for s in self.compilation_config.cudagraph_capture_sizes if s >= num_tokens]
        none = CUDAGraphMode.NONE, SimpleNamespace(num_tokens=num_tokens, num_reqs=None)
        if not self.keys_initialized or not sizes or self.cudagraph_mode == CUDAGraphMode.NONE or has_lora:
            return none
        wanted = self.cudagraph_mode.decode_mode() if uniform_decode else self.cudagraph_mode.mixed_mode()
        for mode in (wanted, self.cudagraph_mode.mixed_mode()):
            if mode in allowed and mode != CUDAGraphMode.NONE:
                return mode, SimpleNamespace(num_tokens=min(sizes), num_reqs=None)
        return none
