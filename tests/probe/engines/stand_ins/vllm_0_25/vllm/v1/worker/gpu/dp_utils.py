"""Stands in for the agreement between ranks; RANKS_SAY is what the other ranks run."""

from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor

RANKS_SAY = None


def dispatch_cg_and_sync_dp(
    cudagraph_manager, num_reqs, num_tokens, uniform_token_count, dp_size, dp_rank, need_eager=False, num_active_loras=0
):
    from vllm.config.compilation import CUDAGraphMode

    if need_eager:
        return BatchExecutionDescriptor(CUDAGraphMode.NONE, num_tokens, num_reqs), None
    found = cudagraph_manager.dispatch(num_reqs, num_tokens, uniform_token_count, num_active_loras=num_active_loras)
    if dp_size > 1 and RANKS_SAY is not None:
        found = BatchExecutionDescriptor(RANKS_SAY, num_tokens, num_reqs)
    return found, None
