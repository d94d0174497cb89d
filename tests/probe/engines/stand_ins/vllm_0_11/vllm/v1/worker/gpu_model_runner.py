"""Stands in for the runner of 0.10.1 to 0.11."""

import logging
from types import SimpleNamespace

from vllm.config.compilation import CUDAGraphMode
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
        self.initialize_cudagraph_capture()
        return 0

    def initialize_cudagraph_capture(self):
        logging.getLogger("vllm.v1.worker.gpu_model_runner").warning(
            "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with FlexAttentionMetadataBuilder backend "
            "(support: AttentionCGSupport.NEVER); setting cudagraph_mode=PIECEWISE because attention is compiled "
            "piecewise"
        )
        self.vllm_config.compilation_config.cudagraph_mode = CUDAGraphMode.PIECEWISE
        self.cudagraph_dispatcher.cudagraph_mode = CUDAGraphMode.PIECEWISE
