"""Stands in for SGLang's model runner and its graph runners."""

import enum
from types import SimpleNamespace


class ForwardMode(enum.IntEnum):
    """What a batch is."""

    EXTEND = 1
    DECODE = 2
    MIXED = 3
    IDLE = 4
    TARGET_VERIFY = 5


class DecodeGraphs:
    """Decode graphs up to a largest batch."""

    def __init__(self, sizes, width=1, **switches):
        self.capture_bs, self.max_bs, self.num_tokens_per_bs = sizes, max(sizes), width
        self.disable_padding = self.require_mlp_tp_gather = self.require_mlp_sync = self.is_encoder_decoder = False
        self.bs = None
        self.__dict__.update(switches)

    def can_run(self, forward_batch):
        size = forward_batch.batch_size
        if self.require_mlp_tp_gather:
            size = max(forward_batch.global_num_tokens_cpu)
        found = size in self.capture_bs if self.disable_padding else size <= self.max_bs
        return found and (not self.require_mlp_sync or forward_batch.can_run_dp_cuda_graph)

    def replay(self, forward_batch):
        self.bs = min(s for s in self.capture_bs if s >= forward_batch.batch_size)


class PrefillGraphs:
    """Prefill graphs up to a largest number of tokens."""

    def __init__(self, sizes):
        self.capture_num_tokens, self.max_num_tokens = sizes, max(sizes)

    def can_run(self, forward_batch):
        return forward_batch.extend_num_tokens <= self.max_num_tokens


class ModelRunner:
    """Answers with whether a graph ran."""

    def __init__(self, server_args, decode=None, prefill=None, is_draft_worker=False):
        self.server_args, self.is_draft_worker = server_args, is_draft_worker
        self.graph_runner, self.piecewise_cuda_graph_runner = decode, prefill
        self.max_running_requests, self.tp_rank = 4096, 0

    def _forward_raw(self, forward_batch, skip_attn_backend_init, pp_proxy_tensors=None):
        decode, prefill, can = self.graph_runner, self.piecewise_cuda_graph_runner, False
        if forward_batch.forward_mode in (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY):
            can = bool(decode and decode.can_run(forward_batch))
            if can:
                decode.replay(forward_batch)
        elif forward_batch.forward_mode == ForwardMode.EXTEND and prefill is not None:
            can = prefill.can_run(forward_batch)
        return SimpleNamespace(logits_output=None, can_run_graph=can)
