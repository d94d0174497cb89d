"""Stands in for the agreement between ranks; RANKS_SAY is what the other ranks run."""

from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor

RANKS_SAY = None


def sync_cudagraph_and_dp_padding(
    cudagraph_manager, desired_batch_desc, num_tokens, num_reqs, uniform_token_count, dp_size, dp_rank
):
    if RANKS_SAY is None or RANKS_SAY.value >= desired_batch_desc.cg_mode.value:
        return desired_batch_desc, None
    return BatchExecutionDescriptor(RANKS_SAY, num_tokens, num_reqs), None


def dispatch_cg_and_sync_dp(
    cudagraph_manager, num_reqs, num_tokens, uniform_token_count, dp_size, dp_rank, need_eager=False, num_active_loras=0
):
    from vllm.config.compilation import CUDAGraphMode

    if need_eager:
        found = BatchExecutionDescriptor(CUDAGraphMode.NONE, num_tokens, num_reqs)
    else:
        found = cudagraph_manager.dispatch(num_reqs, num_tokens, uniform_token_count, num_active_loras=num_active_loras)
    if dp_size == 1:
        return found, None
    return sync_cudagraph_and_dp_padding(
        cudagraph_manager, found, num_tokens, num_reqs, uniform_token_count, dp_size, dp_rank
    )
