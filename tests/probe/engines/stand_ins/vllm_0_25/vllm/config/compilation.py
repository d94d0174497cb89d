"""Graph modes, named and numbered as vLLM does."""

import enum
import logging


class CUDAGraphMode(enum.Enum):
    """NONE, PIECEWISE and FULL are what a step runs; the pairs are (decode, mixed)."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def decode_mode(self):
        return CUDAGraphMode(self.value[0]) if isinstance(self.value, tuple) else self

    def mixed_mode(self):
        return CUDAGraphMode(self.value[1]) if isinstance(self.value, tuple) else self


class CompilationConfig:
    """The part of vLLM's compilation config that graphs need."""

    def __init__(self, cudagraph_mode, sizes):
        self.cudagraph_mode = cudagraph_mode
        self.cudagraph_capture_sizes = sizes
        self.max_cudagraph_capture_size = max(sizes) if sizes else 0

    def resolve_cudagraph_mode_and_sizes(
        self, min_cg_support, min_cg_attn_backend, uniform_decode_query_len=1, use_v2_model_runner=False
    ):
        if min_cg_support == "NEVER" and self.cudagraph_mode.decode_mode() == CUDAGraphMode.FULL:
            logging.getLogger("vllm.config.compilation").warning(
                f"CUDAGraphMode.{self.cudagraph_mode.name} is not supported with {min_cg_attn_backend} backend "
                "(support: NEVER); setting cudagraph_mode=PIECEWISE because attention is compiled piecewise"
            )
            self.cudagraph_mode = CUDAGraphMode.PIECEWISE
        return self.cudagraph_mode
