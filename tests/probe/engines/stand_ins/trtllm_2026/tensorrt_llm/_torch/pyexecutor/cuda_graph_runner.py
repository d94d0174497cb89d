"""Stands in for TensorRT-LLM's graph runner."""

import weakref


class CUDAGraphRunner:
    """Exact sizes only; padding adds dummy requests before."""

    def __init__(self, engine, sizes, enabled=True, padding=False):
        self.engine_ref = weakref.ref(engine)
        self.enabled, self.padding_enabled = enabled, padding
        self.supported_batch_sizes, self.max_supported_batch_size = sizes, max(sizes)

    def maybe_get_cuda_graph(self, batch, enable_spec_decode, attn_metadata, spec_metadata=None):
        size = batch.batch_size
        if not self.enabled or not batch.can_run_cuda_graph or size not in self.supported_batch_sizes:
            return None, None, None
        return "attention", None, (size, 0, False)

    def needs_capture(self, key):
        return False
