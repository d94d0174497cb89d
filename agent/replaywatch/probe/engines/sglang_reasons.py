"""What SGLang did with a batch and why: its own conditions, asked again in the same order once it has said no.

Source: `can_run` of `model_executor/cuda_graph_runner.py` (0.5.9, 0.5.11) and `can_run_graph` of
`model_executor/runner/decode_cuda_graph_runner.py` (0.5.16, 0.5.23).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from replaywatch.probe.engines.sglang_config import decode_runner, enforced_by, is_off, prefill_runner

_PHASES = {
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "DLLM_EXTEND": "decode",
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DRAFT_EXTEND": "prefill",
    "DRAFT_EXTEND_V2": "prefill",
    "MIXED": "mixed",
}


class Batch:
    """A batch as it came: phase (None where idle ranks keep company), sequences, tokens; context of all sequences."""

    __slots__ = ("batch", "context", "phase", "tokens", "width")

    def __init__(self, runner: Any, forward_batch: Any) -> None:
        mode = forward_batch.forward_mode
        self.phase = _PHASES.get(getattr(mode, "_name_", str(mode)))
        self.batch = int(forward_batch.batch_size)
        self.width = width(decode_runner(runner)) if self.phase == "decode" else 1
        extend = getattr(forward_batch, "extend_num_tokens", None) if self.phase != "decode" else None
        self.tokens = extend if isinstance(extend, int) else self.batch * self.width
        context = getattr(forward_batch, "seq_lens_sum", None)
        self.context = context if type(context) is int else None  # never a tensor, whose value waits for the device


def context_of(seen: Batch) -> tuple[int, int] | None:
    """Tokens over all sequences, and how many those are."""
    return (seen.context, seen.batch) if seen.context else None


def width(graphs: Any) -> int:
    """Tokens of one sequence in a decode graph: more than one with speculation."""
    for name in ("captured_req_width", "num_tokens_per_bs"):
        value = getattr(graphs, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 1


def replayed(runner: Any, seen: Batch) -> tuple[str, int]:
    """Mode and padded tokens of a replayed batch."""
    if seen.phase == "decode":
        graphs = decode_runner(runner)
        size = getattr(graphs, "bs", None)  # the size it was padded to, kept by the runner
        padded = (size if isinstance(size, int) and size >= seen.batch else _covering(graphs, seen.batch)) * seen.width
        return ("piecewise" if "Breakable" in type(getattr(graphs, "backend", None)).__name__ else "full"), padded
    graphs = prefill_runner(runner)
    sizes = sorted(getattr(graphs, "capture_num_tokens", None) or ())
    at = bisect_left(sizes, seen.tokens)
    full = getattr(graphs, "prefill_backend_name", None) == "full"
    return ("full" if full else "piecewise"), (sizes[at] if at < len(sizes) else seen.tokens)


def why_piecewise(seen: Batch) -> str:
    """Piecewise graphs are what the configuration asks for in this phase."""
    return "mode_piecewise" if seen.phase == "decode" else "prefill_by_design"


def why_eager(runner: Any, forward_batch: Any, seen: Batch) -> tuple[str, int]:
    """Reason, and the size that was looked for: over all ranks where they share one graph size."""
    if seen.phase != "decode":
        return "prefill_by_design", seen.batch
    graphs = decode_runner(runner)
    if is_off(graphs):
        asked = enforced_by(getattr(runner, "server_args", None))
        return ("forced_eager" if asked else "mode_none"), seen.batch
    return why_runner_refuses(graphs, forward_batch, seen.batch)


def why_runner_refuses(graphs: Any, forward_batch: Any, batch: int) -> tuple[str, int]:
    """Reason for which a runner with graphs does not replay this batch, and the size that it looked for."""
    if getattr(forward_batch, "replace_embeds", None) is not None:
        return "multimodal_input", batch
    given = getattr(getattr(forward_batch, "spec_info", None), "num_tokens_per_req", None)
    if isinstance(given, int) and given > 0 and given != width(graphs):
        return "speculative_width", batch
    size = _size_over_ranks(graphs, forward_batch, batch)
    most = getattr(graphs, "max_bs", None)
    if isinstance(most, int) and size > most:
        return "above_ceiling", size
    if getattr(graphs, "disable_padding", False) and size not in (getattr(graphs, "capture_bs", None) or ()):
        return "no_matching_graph", size
    if getattr(graphs, "require_mlp_sync", False) and not _ranks_agree(forward_batch):
        return "ranks_disagree", size
    if getattr(graphs, "is_encoder_decoder", False):
        return "multimodal_input", size
    return "other", size


def _size_over_ranks(graphs: Any, forward_batch: Any, batch: int) -> int:
    """Sequences that the graph must hold: the largest rank's, where the ranks gather their tokens."""
    if not getattr(graphs, "require_mlp_tp_gather", False):
        return batch
    for name in ("original_global_num_tokens_cpu", "global_num_tokens_cpu"):
        counts = getattr(forward_batch, name, None)
        if counts:
            return max(batch, int(max(counts)) // (1 if name.startswith("original") else width(graphs)))
    return batch


def _ranks_agree(forward_batch: Any) -> bool:
    for name in ("can_run_decode_cuda_graph", "can_run_dp_cuda_graph"):
        value = getattr(forward_batch, name, None)
        if value is not None:
            return bool(value)
    return True


def _covering(graphs: Any, batch: int) -> int:
    sizes = sorted(getattr(graphs, "capture_bs", None) or ())
    at = bisect_left(sizes, batch)
    return int(sizes[at]) if at < len(sizes) else batch
