"""Who is watched: process, rank, engine, device. Only asks what the process already knows; never creates a context."""

from __future__ import annotations

import os
from typing import Any

from replaywatch.probe.patching import loaded
from replaywatch.probe.settings import Settings

# First match wins: an engine also imports transformers and torch.
_ENGINES = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("tensorrt_llm", "trtllm"),
    ("text_generation_server", "tgi"),
    ("transformers", "transformers"),
    ("torch", "torch"),
)


def engine() -> str:
    """The engine, as far as imported modules tell."""
    return next((name for module, name in _ENGINES if loaded(module) is not None), "unknown")


def engine_module() -> Any:
    """The engine's imported module, for its version; None where there is none beside torch."""
    return next((m for module, name in _ENGINES if name != "torch" and (m := loaded(module)) is not None), None)


def rank() -> int | None:
    """Rank from torch.distributed where it is set up, else from RANK or LOCAL_RANK."""
    distributed = loaded("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:  # the probe's border: a private state of torch
        pass
    for name in ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def cuda_ready() -> bool:
    """Whether this process has initialised CUDA through torch."""
    torch = loaded("torch")
    try:
        return torch is not None and bool(torch.cuda.is_initialized())
    except Exception:  # the probe's border: torch may be half imported
        return False


def device(hint: int | None = None) -> tuple[int | None, str | None, str | None]:
    """Index on the host, UUID and name of the device that this process uses; None where unknown or not in use yet.

    The helper thread's own current device says nothing, so it is the `hint` (where graphs were captured), else the only
    device with a context, else the one that holds most memory.
    """
    if not cuda_ready():
        return None, None, None
    torch = loaded("torch")
    try:
        index = _used_device(torch, hint)
        properties = torch.cuda.get_device_properties(index)
    except Exception:  # the probe's border
        return None, None, None
    uuid = getattr(properties, "uuid", None)  # from torch 2.4 or 2.5 on, by build
    name = getattr(properties, "name", None)
    return _physical_index(index), (f"GPU-{uuid}" if uuid is not None else None), (str(name) if name else None)


def _used_device(torch: Any, hint: int | None) -> int:
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if hint is not None or has_context is None:
        return hint if hint is not None else int(torch.cuda.current_device())
    used = [index for index in range(torch.cuda.device_count()) if has_context(index)]
    if not used:
        raise RuntimeError("no device has a context")
    return used[0] if len(used) == 1 else max(used, key=torch.cuda.memory_reserved)


def describe(
    settings: Settings, component: str | None = None, phase: str | None = None, device_hint: int | None = None
) -> dict[str, Any]:
    """The workload in the wire form."""
    index, uuid, _ = device(device_hint)
    fields: dict[str, Any] = {
        "pid": os.getpid(),
        "rank": rank(),
        "engine": engine(),
        "model_name": settings.model_name,
        "component": component or settings.component,
        "phase": phase,
        "gpu_index": index,
        "gpu_uuid": uuid,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _physical_index(index: int) -> int | None:
    """The device's index on the host; None where CUDA_VISIBLE_DEVICES lists UUIDs, which do not tell it."""
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    if not visible:
        return index
    return int(visible[index]) if index < len(visible) and visible[index].isdigit() else None
