"""vLLM's configuration as fields of the contract's EngineConfig: asked for, made of it, and who decided.

Source: `vllm/config/{vllm,compilation,model,scheduler,parallel}.py`, `vllm/config.py` (0.9); read in 0.9.2 to 0.33.0.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from replaywatch.probe.engines.command_line import options, switch
from replaywatch.probe.engines.vllm_reasons import Facts

# Settings worth seeing beside the fields of their own, as attribute paths from VllmConfig.
_SETTINGS = (
    "compilation_config.mode", "compilation_config.level", "compilation_config.backend",
    "compilation_config.use_inductor_graph_partition", "compilation_config.cudagraph_specialize_lora",
    "scheduler_config.max_num_batched_tokens", "parallel_config.pipeline_parallel_size",
    "parallel_config.enable_expert_parallel", "use_v2_model_runner", "speculative_config.method",
    "model_config.disable_cascade_attn", "model_config.max_model_len",
)  # fmt: skip
_FULL_DECODE = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_MIXED = ("FULL", "PIECEWISE", "FULL_AND_PIECEWISE")
_MODE_NUMBERS = {"0": "NONE", "1": "PIECEWISE", "2": "FULL"}


def reach(thing: Any, path: str) -> Any:
    """An attribute down a dotted path; None where a part is missing or cannot be asked."""
    for name in path.split("."):
        try:
            thing = getattr(thing, name, None)
        except Exception:  # the probe's border: a property of somebody else's class
            return None
        if thing is None:
            return None
    return thing


def mode_name(mode: Any) -> str | None:
    """A graph mode's name: of the enum, of a text, or of the number that the enum has for it."""
    name = getattr(mode, "_name_", None) or getattr(mode, "name", None)
    if name is None and isinstance(mode, (str, int)) and not isinstance(mode, bool):
        name = _MODE_NUMBERS.get(str(mode), mode if isinstance(mode, str) else None)
    return str(name).upper().rsplit(".", 1)[-1] if name is not None else None


def resolved_mode(vllm_config: Any) -> str | None:
    """The mode that vLLM settled on; before 0.10.1 from use_cudagraph and full_cuda_graph."""
    compilation = reach(vllm_config, "compilation_config")
    name = mode_name(reach(compilation, "cudagraph_mode"))
    if name is not None or compilation is None:
        return name
    used = getattr(compilation, "use_cudagraph", None)
    if used is None:
        return None
    if not used or reach(vllm_config, "model_config.enforce_eager"):
        return "NONE"
    return "FULL" if getattr(compilation, "full_cuda_graph", False) else "PIECEWISE"


def config_fields(vllm_config: Any, asked: Mapping[str, Any] | None, heard: Iterable[str]) -> dict[str, Any]:
    """Fields of EngineConfig. Shape: `asked` as `recall` gave it, `heard` what vLLM logged about its decision."""
    asked, heard = asked or {}, list(heard)
    resolved = resolved_mode(vllm_config)
    eager = bool(reach(vllm_config, "model_config.enforce_eager"))
    speculative = reach(vllm_config, "speculative_config.num_speculative_tokens") or None
    sizes = reach(vllm_config, "compilation_config.cudagraph_capture_sizes")
    requested = asked.get("mode") or ("NONE" if eager and not asked else None)
    fields = {
        "engine": "vllm",
        "requested_mode": requested,
        "resolved_mode": resolved,
        "mode_reason": "; ".join(heard)[:400] or None,
        "graphs_enabled": None if resolved is None else resolved != "NONE",
        "enforced_by": enforced_by(eager, resolved, asked),
        "capture_sizes": sorted({int(s) for s in sizes}) if sizes and resolved != "NONE" else None,
        "max_capture_size": max_capture_size(vllm_config),
        "capture_unit": "tokens" if speculative else "sequences",
        "max_batch_size": _number(reach(vllm_config, "scheduler_config.max_num_seqs")),
        "padding": True,
        "speculative_tokens": _number(speculative),
        "data_parallel_size": _number(reach(vllm_config, "parallel_config.data_parallel_size")),
        "tensor_parallel_size": _number(reach(vllm_config, "parallel_config.tensor_parallel_size")),
        "role": _text(reach(vllm_config, "kv_transfer_config.kv_role")),
        "settings": settings(vllm_config),
    }
    return {key: value for key, value in fields.items() if value is not None}


def workload_fields(vllm_config: Any) -> dict[str, Any]:
    """Fields of Workload that vLLM knows: the served name, the rank over all ranks, the pipeline stage as component."""
    name = reach(vllm_config, "model_config.served_model_name") or reach(vllm_config, "model_config.model")
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    rank = _number(reach(vllm_config, "parallel_config.rank"))
    stage = pipeline_stage(vllm_config)
    replica = _number(reach(vllm_config, "parallel_config.data_parallel_rank"))
    size = _number(reach(vllm_config, "parallel_config.world_size"))
    if rank is not None and replica and size:
        rank += replica * size
    name = str(name).rstrip("/").rsplit("/", 1)[-1][:128] if name else None
    return {"model_name": name, "rank": rank, "component": f"stage {stage}" if stage is not None else None}


def pipeline_stage(vllm_config: Any) -> int | None:
    """Stage of this rank, from 0; None without a pipeline. Ranks count tensors first, then contexts, then stages."""
    parallel = reach(vllm_config, "parallel_config")
    rank, stages = _number(reach(parallel, "rank")), _number(reach(parallel, "pipeline_parallel_size"))
    if rank is None or stages is None or stages < 2:
        return None
    ways = (_number(reach(parallel, f"{way}_parallel_size")) or 1 for way in ("tensor", "prefill_context"))
    return rank // math.prod(ways) % stages


def max_capture_size(vllm_config: Any) -> int | None:
    """Largest size in tokens that can be captured, whatever the version calls it."""
    compilation = reach(vllm_config, "compilation_config")
    for name in ("max_cudagraph_capture_size", "max_capture_size"):
        size = _number(reach(compilation, name))
        if size:
            return size
    sizes = reach(compilation, "cudagraph_capture_sizes")
    return max(sizes) if sizes else None


def enforced_by(eager: bool, resolved: str | None, asked: Mapping[str, Any]) -> str | None:
    """Who asked for eager; None where nobody did and vLLM itself runs eager. Without `asked` the flag decides."""
    if asked:
        return asked.get("by") if resolved == "NONE" else None
    if not eager:
        return None
    if switch(options(sys.argv[1:]), "enforce-eager"):
        return "the flag --enforce-eager"
    return "enforce_eager=True, set by a configuration file or the calling code (not on the command line)"


def facts(vllm_config: Any, heard: Iterable[str], mode: str | None = None) -> Facts:
    """What the reasons of steps need to know of the configuration; `mode` where a dispatcher has one of its own."""
    known = Facts()
    known.mode = mode or resolved_mode(vllm_config) or known.mode
    known.decode_tokens = 1 + (_number(reach(vllm_config, "speculative_config.num_speculative_tokens")) or 0)
    known.max_size = max_capture_size(vllm_config)
    known.decode_is_full = known.mode in _FULL_DECODE
    known.mixed_is_captured = known.mode in _MIXED
    known.encoder = bool(reach(vllm_config, "model_config.is_encoder_decoder"))
    if reach(vllm_config, "model_config.enforce_eager"):
        known.because = "forced_eager"
    elif any("is not supported with" in text for text in heard):
        known.because = "attention_backend"
    return known


def settings(vllm_config: Any) -> dict[str, str]:
    """Further settings as short texts."""
    found = {}
    for path in _SETTINGS:
        value = reach(vllm_config, path)
        if value is not None and value != "":
            found[path.rsplit("_config.", 1)[-1]] = _text(mode_name(value) if hasattr(value, "_name_") else value) or ""
    return found


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return str(value)[:64] if value is not None else None
