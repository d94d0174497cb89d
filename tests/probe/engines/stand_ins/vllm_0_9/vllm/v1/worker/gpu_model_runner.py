"""Stands in for the runner of 0.9: no dispatcher, the forward context carries the size."""

from contextlib import contextmanager


@contextmanager
def set_forward_context(
    attn_metadata, vllm_config, virtual_engine=0, num_tokens=None, num_tokens_across_dp=None, skip_cuda_graphs=False
):
    yield


class GPUModelRunner:
    """Pads to the next captured size, and forwards."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self.speculative_config = None
        self.use_cuda_graph = vllm_config.compilation_config.use_cudagraph
        self.cudagraph_batch_sizes = list(vllm_config.compilation_config.cudagraph_capture_sizes)
        self.full_cuda_graph = False

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        tokens = scheduler_output.total_num_scheduled_tokens
        sizes = [s for s in self.cudagraph_batch_sizes if s >= tokens]
        size = min(sizes) if self.use_cuda_graph and sizes else tokens
        with set_forward_context(None, self.vllm_config, num_tokens=size, skip_cuda_graphs=False):
            return size

    def _dummy_run(self, num_tokens):
        with set_forward_context(None, self.vllm_config, num_tokens=num_tokens):
            return num_tokens

    def capture_model(self):
        return None
