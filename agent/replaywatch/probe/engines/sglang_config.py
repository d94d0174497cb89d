"""SGLang's configuration as fields of the contract's EngineConfig.

Source: `server_args.py` and `model_executor/cuda_graph_config.py`, read in 0.5.9, 0.5.11, 0.5.16 and 0.5.23. SGLang
fills its arguments in while it resolves them, so what was asked is read from the command line and the configuration
file; from 0.5.16 on it also keeps which settings did not come from its defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from replaywatch.probe.engines.command_line import FILE, Ask, as_object, asked_of_command, first, switch, value_of

DISABLED = "DISABLED"
_EXPLICIT = "_cuda_graph_config_locked"  # pairs of phase and setting that did not come from defaults
_DECODE_BACKEND = ("decode", "backend")
_SETTINGS = (
    "attention_backend", "decode_attention_backend", "speculative_algorithm", "enable_dp_attention",
    "enable_torch_compile", "enable_two_batch_overlap", "disable_overlap_schedule", "enable_piecewise_cuda_graph",
    "disable_piecewise_cuda_graph", "piecewise_cuda_graph_max_tokens", "chunked_prefill_size",
)  # fmt: skip


def decode_runner(runner: Any) -> Any:
    """The runner of decode graphs: `decode_cuda_graph_runner`, to 0.5.11 `graph_runner`."""
    return getattr(runner, "decode_cuda_graph_runner", None) or getattr(runner, "graph_runner", None)


def prefill_runner(runner: Any) -> Any:
    """The runner of prefill graphs: `prefill_cuda_graph_runner`, to 0.5.11 `piecewise_cuda_graph_runner`."""
    return getattr(runner, "prefill_cuda_graph_runner", None) or getattr(runner, "piecewise_cuda_graph_runner", None)


def is_off(graphs: Any) -> bool:
    """Whether a phase has no graphs; newer versions put an eager runner in their place."""
    return graphs is None or type(graphs).__name__ == "EagerRunner"


def config_fields(runner: Any) -> dict[str, Any]:
    """Fields of EngineConfig from a model runner with its server arguments."""
    given, graphs = getattr(runner, "server_args", None), decode_runner(runner)
    off = is_off(graphs)
    sizes = None if off else getattr(graphs, "capture_bs", None)
    draft_tokens = _number(given, "speculative_num_draft_tokens")
    resolved = DISABLED if off else _backend(graphs)
    fields = {
        "engine": "sglang",
        "requested_mode": requested_mode(given),
        "resolved_mode": resolved,
        "mode_reason": parted(given, resolved),
        "graphs_enabled": not off,
        "enforced_by": enforced_by(given) if off else None,
        "capture_sizes": sorted({int(s) for s in sizes}) if sizes else None,
        "max_capture_size": None if off else _number(graphs, "max_bs"),
        "capture_unit": "sequences",
        "max_batch_size": _number(runner, "max_running_requests") or _number(given, "max_running_requests"),
        "padding": None if off else not getattr(graphs, "disable_padding", False),
        "speculative_tokens": draft_tokens,
        "data_parallel_size": _number(given, "dp_size"),
        "tensor_parallel_size": _number(given, "tp_size"),
        "role": _role(given),
        "settings": _settings(runner, given),
    }
    return {key: value for key, value in fields.items() if value is not None}


def workload_fields(runner: Any) -> dict[str, Any]:
    """Fields of Workload that SGLang knows."""
    given = getattr(runner, "server_args", None)
    name = getattr(given, "served_model_name", None) or getattr(given, "model_path", None)
    return {
        "model_name": str(name).rstrip("/").rsplit("/", 1)[-1][:128] if name else None,
        "rank": _number(runner, "tp_rank"),
    }


def requested_mode(given: Any) -> str | None:
    """What was asked of decode graphs; None where nothing was. Shape: `given` server arguments."""
    ask = decode_ask()
    if ask is not None:
        return ask.mode
    return DISABLED if _switched_by_caller(given) else None


def enforced_by(given: Any) -> str | None:
    """Who switched decode graphs off; None where nobody asked for it."""
    ask = decode_ask()
    if ask is not None and ask.mode == DISABLED:
        return f"{ask.option} in the configuration file" if ask.where == FILE else f"the flag {ask.option}"
    if _switched_by_caller(given):
        return "the server arguments, set by the calling code (not on the command line)"
    return None


def parted(given: Any, resolved: str) -> str | None:
    """A sentence where graphs are off, nobody is known to have asked for it, and the role needs them."""
    if resolved != DISABLED or enforced_by(given) is not None or _role(given) == "prefill":
        return None
    ask = decode_ask()
    said = f"{ask.where} says {ask.option}" if ask else "no option asks for eager"
    who = "the calling code or SGLang itself" if _given_as_off(given) else "SGLang itself"
    return f"{said}, {who} turned decode graphs off"


def decode_ask() -> Ask | None:
    """What the command line asks of decode graphs, else the configuration file."""
    return _decode_ask(tuple(sys.argv[1:]))


@lru_cache(maxsize=8)  # eager steps ask for it
def _decode_ask(words: tuple[str, ...]) -> Ask | None:
    return first(_ask_of_options(found, where) for where, found in asked_of_command(words))


def _switched_by_caller(given: Any) -> bool:
    """Whether it was the calling code that switched decode graphs off, and not SGLang.

    Known where SGLang keeps what did not come from its defaults, unless an option of the operator's is what it kept.
    """
    told = getattr(given, "cuda_graph_backend_decode", None) or decode_ask() is None
    return bool(told) and hasattr(given, _EXPLICIT) and _given_as_off(given)


def _given_as_off(given: Any) -> bool:
    """Whether the server arguments have decode graphs off and may have been given so.

    SGLang sets the switch and the configuration itself too, the phase's backend never.
    """
    if _DECODE_BACKEND not in getattr(given, _EXPLICIT, (_DECODE_BACKEND,)):
        return False
    backend = getattr(given, "cuda_graph_backend_decode", None)
    if not backend:
        if getattr(given, "disable_cuda_graph", False) or getattr(given, "disable_decode_cuda_graph", False):
            return True
        config = getattr(given, "cuda_graph_config", None)
        decode = config.get("decode") if isinstance(config, dict) else getattr(config, "decode", None)
        backend = decode.get("backend") if isinstance(decode, dict) else getattr(decode, "backend", None)
    return bool(backend == "disabled")


def _ask_of_options(found: Mapping[str, str], where: str) -> Ask | None:
    """The most exact option wins, as in SGLang: JSON, the phase's backend, the phase's switch, the switch of all."""
    decode = as_object(value_of(found, "cuda-graph-config")).get("decode")
    backend = decode.get("backend") if isinstance(decode, dict) else None
    if backend:
        return Ask(str(backend).upper(), "--cuda-graph-config", where)
    backend = value_of(found, "cuda-graph-backend-decode")
    if backend:
        return Ask(backend.upper(), f"--cuda-graph-backend-decode={backend}", where)
    for name in ("disable-decode-cuda-graph", "disable-cuda-graph"):
        if switch(found, name):
            return Ask(DISABLED, f"--{name}", where)
    return None


def _settings(runner: Any, given: Any) -> dict[str, str]:
    """Further settings as short texts; the longest context as the model's configuration settled it."""
    found = {name: getattr(given, name, None) for name in _SETTINGS}
    settled = getattr(getattr(runner, "model_config", None), "context_len", None)
    found["context_length"] = settled or getattr(given, "context_length", None)
    return {name: str(value)[:64] for name, value in found.items() if value is not None}


def _backend(graphs: Any) -> str:
    name = type(getattr(graphs, "backend", None)).__name__
    return "BREAKABLE" if "Breakable" in name else "FULL"


def _role(given: Any) -> str | None:
    mode = getattr(given, "disaggregation_mode", None)
    return str(mode) if mode and str(mode) != "null" else None


def _number(thing: Any, name: str) -> int | None:
    value = getattr(thing, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def attention_ranks(runner: Any) -> int:
    """Ranks that share the heads of one sequence: with data-parallel attention fewer than those of the model."""
    given, ranks = getattr(runner, "server_args", None), getattr(runner, "tp_size", 1)
    if type(ranks) is not int:
        return 1
    groups = getattr(given, "dp_size", 1) if getattr(given, "enable_dp_attention", False) else 1
    return max(1, ranks // groups) if type(groups) is int and groups > 0 else ranks
