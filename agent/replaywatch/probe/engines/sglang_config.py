"""SGLang's configuration as fields of the contract's EngineConfig.

Source: `server_args.py` and `model_executor/cuda_graph_config.py`, read in 0.5.9, 0.5.11, 0.5.16 and 0.5.23. SGLang
fills its arguments in while it resolves them, so what was asked is read from the command line.
"""

from __future__ import annotations

import sys
from typing import Any

_OFF_FLAGS = ("--disable-cuda-graph", "--cuda-graph-backend-decode=disabled")
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
    fields = {
        "engine": "sglang",
        "requested_mode": requested_mode(),
        "resolved_mode": "DISABLED" if off else _backend(graphs),
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
        "settings": {n: str(v)[:64] for n in _SETTINGS if (v := getattr(given, n, None)) is not None},
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


def requested_mode() -> str | None:
    """What the command line asks of decode graphs; None where it is silent."""
    if any(flag in sys.argv for flag in _OFF_FLAGS):
        return "DISABLED"
    for at, word in enumerate(sys.argv):
        flag, _, value = word.partition("=")
        if flag == "--cuda-graph-backend-decode":
            return (value or (sys.argv[at + 1] if at + 1 < len(sys.argv) else "")).upper() or None
    return None


def enforced_by(given: Any) -> str | None:
    """Who switched graphs off."""
    for flag in _OFF_FLAGS:
        if flag in sys.argv:
            return f"the flag {flag}"
    if getattr(given, "disable_cuda_graph", False):
        return "disable_cuda_graph, set by a configuration file, the calling code or SGLang itself"
    return None


def _backend(graphs: Any) -> str:
    name = type(getattr(graphs, "backend", None)).__name__
    return "BREAKABLE" if "Breakable" in name else "FULL"


def _role(given: Any) -> str | None:
    mode = getattr(given, "disaggregation_mode", None)
    return str(mode) if mode and str(mode) != "null" else None


def _number(thing: Any, name: str) -> int | None:
    value = getattr(thing, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
