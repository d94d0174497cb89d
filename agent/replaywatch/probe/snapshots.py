"""What the process runs on and how it was configured, sent once and whenever it changes.

The dictionaries are the wire form of the contract's `Fingerprint` and `EngineConfig`; ids are digests of all fields,
absent ones included, computed as the contract does (a test holds both together). Of the environment only variables
that switch graphs are read.
"""

from __future__ import annotations

import json
import os
from typing import Any

from replaywatch.probe import workload
from replaywatch.probe.patching import loaded

FINGERPRINT_FIELDS = (
    "gpu_model", "driver", "cuda", "cupti", "torch", "engine", "engine_version", "model_name", "host_cpu", "python",
    "code_version",
)  # fmt: skip
CONFIG_FIELDS = (
    "engine", "requested_mode", "resolved_mode", "mode_reason", "graphs_enabled", "enforced_by", "capture_sizes",
    "max_capture_size", "capture_unit", "max_batch_size", "padding", "compile_mode", "speculative_tokens",
    "weight_bytes", "layers", "cache_bytes_per_token", "expert_bytes", "experts", "experts_per_token",
    "window_bytes_per_token", "window_tokens", "data_parallel_size", "tensor_parallel_size", "role", "settings",
    "environment",
)  # fmt: skip
# As in the contract: where they are unknown an id is what it was before they came.
LATER_FIELDS = (
    "weight_bytes", "layers", "cache_bytes_per_token", "expert_bytes", "experts", "experts_per_token",
    "window_bytes_per_token", "window_tokens",
)  # fmt: skip
# Variables that switch graphs, compilation or launches; values are short words or numbers, never paths or secrets.
ENVIRONMENT = (
    "TORCHINDUCTOR_CUDAGRAPHS", "TORCHINDUCTOR_GRAPH_PARTITION", "TORCHINDUCTOR_CUDAGRAPH_OR_ERROR",
    "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "VLLM_USE_V1", "VLLM_USE_V2_MODEL_RUNNER", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "VLLM_USE_BREAKABLE_CUDAGRAPH", "VLLM_ENABLE_CUDAGRAPH_GC", "SGLANG_ENABLE_CUDA_GRAPH_DEDUP", "CUDA_GRAPHS",
    "GGML_CUDA_DISABLE_GRAPHS", "GGML_CUDA_GRAPH_OPT",
)  # fmt: skip
_EMPTY: dict[str, Any] = {"engine": "unknown", "settings": {}, "environment": {}}


def digest(fields: tuple[str, ...], record: dict[str, Any]) -> str:
    """Id of a record: the digest of all its fields, 16 hexadecimal digits."""
    import hashlib  # 3 ms where torch has not loaded it; by the first window it has

    whole = {name: record.get(name, _EMPTY.get(name)) for name in fields}
    whole = {name: value for name, value in whole.items() if value is not None or name not in LATER_FIELDS}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(model_name: str | None, device_hint: int | None = None) -> dict[str, Any]:
    """What decides how fast the same work runs; fields that are not known yet are absent."""
    import platform

    torch = loaded("torch")
    engine_module = workload.engine_module()
    fields = {
        "gpu_model": workload.device(device_hint)[2],
        "driver": _driver_version(),
        "cuda": _text(getattr(getattr(torch, "version", None), "cuda", None)),
        "torch": _text(getattr(torch, "__version__", None)),
        "engine": workload.engine(),
        "engine_version": _text(getattr(engine_module, "__version__", None)),
        "model_name": model_name,
        "host_cpu": _host_cpu(),
        "python": platform.python_version(),
    }
    return {key: value for key, value in fields.items() if value is not None}


def config(compile_modes: dict[str, int], extra: dict[str, Any]) -> dict[str, Any]:
    """How graphs were asked for, as far as torch knows; an engine adapter's `extra` fields win."""
    fields: dict[str, Any] = {"engine": workload.engine()}
    environment = {name: os.environ[name][:64] for name in ENVIRONMENT if os.environ.get(name)}
    if environment:
        fields["environment"] = environment
    if compile_modes:
        most = max(compile_modes, key=lambda mode: compile_modes[mode])
        fields["compile_mode"] = most
        fields["settings"] = {f"compiled.{mode}": str(count) for mode, count in compile_modes.items()}
    told = {key: value for key, value in extra.items() if value is not None}
    settings = {**fields.get("settings", {}), **told.get("settings", {})}
    return fields | told | ({"settings": settings} if settings else {})


def _text(value: object) -> str | None:
    return str(value)[:128] if value is not None else None


def _driver_version() -> str | None:
    """Version of the kernel driver. Source: the file that NVIDIA's kernel module shows."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((w for w in words if w[:1].isdigit() and w.count(".") >= 1), None)


def _host_cpu() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()[:128]
    except OSError:
        pass
    return None
