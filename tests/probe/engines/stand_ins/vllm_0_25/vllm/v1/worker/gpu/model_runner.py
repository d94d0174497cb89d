"""Stands in for the second model runner."""

from types import SimpleNamespace

from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager, ModelCudaGraphManager
from vllm.v1.worker.gpu.dp_utils import dispatch_cg_and_sync_dp


class GPUModelRunner:
    """Dispatches through the function that the ranks agree by."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self.speculative_config = vllm_config.speculative_config
        drafts = self.speculative_config.num_speculative_tokens if self.speculative_config else 0
        self.cudagraph_manager = ModelCudaGraphManager(vllm_config, decode_query_len=1 + drafts)
        self.draft_manager = CudaGraphManager(vllm_config) if drafts else None
        self.ranks = vllm_config.parallel_config.data_parallel_size

    def execute_model(
        self,
        scheduler_output,
        intermediate_tensors=None,
        dummy_run=False,
        skip_attn_for_dummy_run=False,
        is_profile=False,
    ):
        counts = scheduler_output.num_scheduled_tokens
        tokens, most = scheduler_output.total_num_scheduled_tokens, max(counts.values())
        uniform = most if most * len(counts) == tokens else None
        return dispatch_cg_and_sync_dp(
            self.cudagraph_manager,
            len(counts),
            tokens,
            uniform,
            self.ranks,
            0,
            need_eager=is_profile,
            num_active_loras=0,
        )[0]

    def sample_tokens(self, grammar_output):
        if self.draft_manager is not None:
            dispatch_cg_and_sync_dp(self.draft_manager, 2, 2, 1, self.ranks, 0)

    def _dummy_run(self, num_tokens, uniform_decode=False, is_profile=False):
        output = SimpleNamespace(num_scheduled_tokens={"dummy": num_tokens}, total_num_scheduled_tokens=num_tokens)
        return self.execute_model(output, dummy_run=True, is_profile=is_profile)

    def capture_model(self, *, profile_only=False):
        if profile_only:
            return 11 << 20
        self.cudagraph_manager._graphs_captured = True
        if self.draft_manager is not None:
            self.draft_manager._graphs_captured = True
        return 7 << 20

    def profile_cudagraph_memory(self):
        return self.capture_model(profile_only=True) // 2
