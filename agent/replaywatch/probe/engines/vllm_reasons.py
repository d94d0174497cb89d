"""Why vLLM did not fully replay a step: from what its dispatcher was asked and what it answered.

Source: `vllm/v1/cudagraph_dispatcher.py` and `vllm/v1/worker/gpu/{cudagraph_utils,dp_utils}.py`, read in 0.9.2, 0.11.2,
0.15.1, 0.18.0, 0.21.0, 0.25.1 and 0.33.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Asked:
    """What one dispatch was asked, whatever the version calls it. Units: tokens."""

    __slots__ = ("eager_only", "full_excluded", "has_lora", "num_tokens", "uniform")

    def __init__(self, num_tokens: int, uniform: bool, has_lora: bool, full_excluded: bool, eager_only: bool) -> None:
        self.num_tokens, self.uniform, self.has_lora = num_tokens, uniform, has_lora
        self.full_excluded, self.eager_only = full_excluded, eager_only


def _asked_of_v1(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Asked:
    """Arguments of `CudagraphDispatcher.dispatch`: a descriptor (to 0.11), else a number of tokens and switches."""
    first = args[0] if args else kwargs.get("batch_descriptor", kwargs.get("num_tokens"))
    if isinstance(first, int) or first is None:
        uniform = args[1] if len(args) > 1 else kwargs.get("uniform_decode", False)
        has_lora = args[2] if len(args) > 2 else kwargs.get("has_lora", False)
        valid, invalid = kwargs.get("valid_modes"), kwargs.get("invalid_modes")
        no_full = bool(kwargs.get("disable_full") or kwargs.get("use_cascade_attn")) or _holds(invalid, "FULL")
        return Asked(first or 0, bool(uniform), bool(has_lora), no_full, valid is not None and _only_none(valid))
    cascade = args[1] if len(args) > 1 else kwargs.get("use_cascade_attn", False)
    uniform = getattr(first, "uniform_decode", getattr(first, "uniform", False))
    return Asked(first.num_tokens, bool(uniform), bool(getattr(first, "has_lora", False)), bool(cascade), False)


def asked_of(who: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Asked:
    """What was asked, of either runner: the second is asked with requests, tokens and the uniform token count."""
    if isinstance(result, tuple):
        return _asked_of_v1(args, kwargs)
    num_tokens = args[1] if len(args) > 1 else kwargs.get("num_tokens", 0)
    uniform = args[2] if len(args) > 2 else kwargs.get("uniform_token_count")
    is_decode = uniform is not None and uniform == getattr(who, "decode_query_len", 1)
    return Asked(num_tokens, is_decode, bool(kwargs.get("num_active_loras")), False, bool(kwargs.get("need_eager")))


def without_dispatcher(runner: Any, kwargs: Mapping[str, Any]) -> tuple[str, Asked, int]:
    """Mode of a step before 0.10.1: from the size that was forwarded and what the runner captures."""
    tokens = kwargs.get("num_tokens") or 0
    sizes = getattr(runner, "cudagraph_batch_sizes", None) or ()
    captured = bool(getattr(runner, "use_cuda_graph", False)) and tokens in sizes
    full = bool(getattr(runner, "full_cuda_graph", False))
    skipped = bool(kwargs.get("skip_cuda_graphs"))
    mode = "eager" if not captured or skipped else "full" if full else "piecewise"
    return mode, Asked(tokens, False, False, skipped, False), tokens


def phase_of(most: int, least: int, decode_tokens: int) -> str:
    """Phase of a batch whose requests have so many tokens. `decode_tokens`: those of a decoding request at most."""
    if most <= decode_tokens:
        return "decode"
    return "mixed" if least <= decode_tokens else "prefill"


class Facts:
    """What is known of the engine at a step. `mode` is the resolved mode's name, `because` why it is no more than that.

    Shape: `because` a fallback reason; `ranks` whether the ranks' agreement overruled this rank; `decode_tokens` tokens
    of a decoding request, speculation included.
    """

    __slots__ = (
        "because", "decode_is_full", "decode_tokens", "encoder", "max_size", "mixed_is_captured", "mode", "ranks",
        "ready",
    )  # fmt: skip

    def __init__(self) -> None:
        self.mode = "FULL_AND_PIECEWISE"
        self.because = "mode_none"
        self.max_size: int | None = None
        self.decode_is_full = True
        self.decode_tokens = 1
        self.mixed_is_captured = True
        self.ready = True
        self.encoder = False
        self.ranks = False


def reason(mode: str, asked: Asked, phase: str, facts: Facts) -> str | None:
    """Reason for a step that was dispatched `mode`; None for a full replay.

    Shape: `mode` full, piecewise or eager; `phase` decode, prefill or mixed.
    """
    if mode == "full":
        return None
    if mode == "piecewise":
        return _why_piecewise(asked, phase, facts)
    return _why_eager(asked, phase, facts)


def _why_piecewise(asked: Asked, phase: str, facts: Facts) -> str:
    if asked.full_excluded:
        return "multimodal_input" if facts.encoder else "cascade_attention"
    if phase != "decode":
        return "prefill_by_design"
    if not facts.decode_is_full:
        return facts.because if facts.because != "mode_none" else "mode_piecewise"
    if facts.ranks:
        return "ranks_disagree"
    return _missing_key(asked)


def _why_eager(asked: Asked, phase: str, facts: Facts) -> str:
    if not facts.ready:
        return "warm_up"
    if facts.mode == "NONE":
        return facts.because
    if facts.ranks:
        return "ranks_disagree"
    if asked.eager_only:
        return "multimodal_input" if facts.encoder else "forced_eager"
    if phase != "decode" and (not facts.mixed_is_captured or _above(asked, facts)):
        return "prefill_by_design"
    if _above(asked, facts):
        return "above_ceiling"
    if asked.full_excluded and facts.decode_is_full:
        return "multimodal_input" if facts.encoder else "cascade_attention"
    if phase != "decode":
        return "lora" if asked.has_lora else "prefill_by_design"
    return _missing_key(asked)


def _above(asked: Asked, facts: Facts) -> bool:
    return facts.max_size is not None and asked.num_tokens > facts.max_size


def _missing_key(asked: Asked) -> str:
    if asked.has_lora:
        return "lora"
    return "no_matching_graph" if asked.uniform else "speculative_width"


def _holds(modes: Any, name: str) -> bool:
    return bool(modes) and any(getattr(m, "_name_", str(m)) == name for m in modes)


def _only_none(modes: Any) -> bool:
    return all(getattr(m, "_name_", str(m)) == "NONE" for m in modes)
