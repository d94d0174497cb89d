"""Stands in for vLLM's arguments and the configuration made of them."""

import logging
from types import SimpleNamespace

from vllm.config.compilation import CompilationConfig, CUDAGraphMode


class EngineArgs:
    """What an operator may ask for."""

    def __init__(
        self,
        enforce_eager=False,
        cudagraph_mode=None,
        sizes=(1, 2, 4, 8),
        max_num_seqs=64,
        drafts=0,
        ranks=1,
        model="/models/tiny",
    ):
        self.enforce_eager = enforce_eager
        self.compilation_config = SimpleNamespace(cudagraph_mode=cudagraph_mode)
        self.sizes, self.max_num_seqs, self.drafts, self.ranks, self.model = sizes, max_num_seqs, drafts, ranks, model

    def create_engine_config(self, usage_context=None):
        mode = self.compilation_config.cudagraph_mode or CUDAGraphMode.FULL_AND_PIECEWISE
        if self.enforce_eager:
            logging.getLogger("vllm.config.vllm").info(
                "Enforce eager set, disabling torch.compile and CUDAGraphs. "
                "This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none"
            )
            mode = CUDAGraphMode.NONE
        drafts = SimpleNamespace(num_speculative_tokens=self.drafts) if self.drafts else None
        return SimpleNamespace(
            instance_id=f"engine-{id(self)}",
            compilation_config=CompilationConfig(mode, list(self.sizes)),
            model_config=SimpleNamespace(
                enforce_eager=self.enforce_eager,
                model=self.model,
                served_model_name=self.model,
                is_encoder_decoder=False,
                max_model_len=4096,
            ),
            scheduler_config=SimpleNamespace(max_num_seqs=self.max_num_seqs, max_num_batched_tokens=8192),
            parallel_config=SimpleNamespace(
                rank=0, world_size=1, data_parallel_size=self.ranks, data_parallel_rank=0, tensor_parallel_size=1
            ),
            speculative_config=drafts,
            kv_transfer_config=None,
        )
