"""What the top-level keys of a Chrome trace say: device, versions, rank, model, base of its clock."""

from __future__ import annotations

import json
from typing import Any, Final

from replaywatch.contract.snapshot import Fingerprint
from replaywatch.sources.timeline import Timeline

_LONGEST_TEXT: Final = 200
# 2001-09-09 in Unix nanoseconds: stamps below it count from baseTimeNanoseconds, stamps above it are Unix time.
_UNIX_NS: Final = 10**18


def parsed(value: Any) -> Any:
    """A value that some writers put into a string as JSON; the value itself otherwise."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def cuda_version(number: Any) -> str | None:
    """12090 as "12.9"; None for anything that is no CUDA version number."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1000 <= number < 1_000_000:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def _text(value: Any) -> str | None:
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: Any) -> dict[str, Any]:
    value = parsed(value)
    return value if isinstance(value, dict) else {}


def _model_name(metadata: dict[str, Any]) -> str | None:
    """Name of the model where whoever recorded the trace noted it."""
    noted = _mapping(metadata.get("metadata"))
    for place in (metadata, noted, _mapping(noted.get("experiment"))):
        for key in ("model_name", "model", "repo_id", "served_model_name"):
            name = _text(place.get(key))
            if name:
                return name
    return None


def apply_metadata(timeline: Timeline, metadata: dict[str, Any]) -> None:
    """Take rank, model, versions and clock base of a trace into its timeline."""
    rank = _integer(_mapping(metadata.get("distributedInfo")).get("rank"))
    timeline.rank = rank if rank is not None and rank >= 0 else None
    timeline.model_name = _model_name(metadata)
    base = _integer(metadata.get("baseTimeNanoseconds"))
    if base is not None and 0 < base < 2 * 10**18 and _first_ns(timeline) < _UNIX_NS:
        timeline.base_ns = base
    if any(key.startswith(("roctracer", "rocprof", "hip_")) for key in metadata):
        timeline.method = "roctracer"
    models = _gpu_models(metadata)
    for track in timeline.devices.values():
        timeline.fingerprints[track.device] = _fingerprint(timeline, metadata, models.get(track.device))


def _first_ns(timeline: Timeline) -> int:
    return min((t.start[0] for t in timeline.devices.values() if len(t)), default=0)


def _gpu_models(metadata: dict[str, Any]) -> dict[int, str]:
    properties = parsed(metadata.get("deviceProperties"))
    models: dict[int, str] = {}
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict):
            number, name = _integer(entry.get("id")), _text(entry.get("name"))
            if number is not None and name:
                models[number] = name
    return models


def _fingerprint(timeline: Timeline, metadata: dict[str, Any], gpu_model: str | None) -> Fingerprint:
    driver = cuda_version(metadata.get("cuda_driver_version"))
    cupti = _integer(metadata.get("cupti_version"))
    return Fingerprint(
        gpu_model=gpu_model,
        driver=f"CUDA {driver}" if driver else None,
        cuda=cuda_version(metadata.get("cuda_runtime_version")),
        cupti=str(cupti) if cupti is not None else None,
        torch=_text(metadata.get("torch_version") or metadata.get("pytorch_version")),
        engine=timeline.engine,
        model_name=timeline.model_name,
    )
