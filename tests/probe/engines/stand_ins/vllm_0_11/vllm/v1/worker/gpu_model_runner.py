"""Stands in for the runner of 0.10.1 to 0.11."""

from types import SimpleNamespace

from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher


class GPUModelRunner:
    """Pads by itself and asks with the padded size."""

    def __init__(self, vllm_config, cascade=False):
        self.vllm_config = vllm_config
        self.speculative_config = None
        self.cudagraph_dispatcher = CudagraphDispatcher(vllm_config)
        self.cascade = cascade

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        tokens, counts = scheduler_output.total_num_scheduled_tokens, scheduler_output.num_scheduled_tokens
        sizes = [s for s in self.vllm_config.compilation_config.cudagraph_capture_sizes if s >= tokens]
        asked = SimpleNamespace(
            num_tokens=min(sizes, default=tokens), uniform_decode=tokens == len(counts), has_lora=False
        )
        return self.cudagraph_dispatcher.dispatch(asked, use_cascade_attn=self.cascade)

    def _dummy_run(self, num_tokens):
        return self.cudagraph_dispatcher.dispatch(
            SimpleNamespace(num_tokens=num_tokens, uniform_decode=False, has_lora=False)
        )

    def capture_model(self):
        return 0
