"""Graph modes, named and numbered as vLLM does."""

import enum


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
