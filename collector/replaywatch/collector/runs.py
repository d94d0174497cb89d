"""What ran in one place one after the other, and what was configured differently each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from replaywatch.collector.fleet import WorkloadView
from replaywatch.contract.snapshot import EngineConfig

SHOWN_MAX: Final = 20
CHANGES_MAX: Final = 12
_SAME: Final = ("namespace", "container", "engine", "model_name", "component", "rank", "phase")
_NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class Run:
    """One process's work here. `changes` are against the run before; None where one of both was not told."""

    view: WorkloadView
    is_this: bool
    changes: tuple[str, ...] | None


def runs_of(view: WorkloadView, workloads: Iterable[WorkloadView]) -> list[Run]:
    """Runs of the same service in the same pod or on the same device, oldest first, as far as they are in sight."""
    found = sorted((v for v in workloads if _is_same_place(v, view)), key=lambda v: (v.first_seen_ns, v.id))
    pairs = zip([None, *found], found, strict=False)
    runs = [Run(v, v.id == view.id, None if old is None else changes(old.config, v.config)) for old, v in pairs]
    return runs[-SHOWN_MAX:]


def changes(old: EngineConfig | None, new: EngineConfig | None) -> tuple[str, ...] | None:
    """What differs, as `name: before → after`; None where one of both is unknown."""
    if old is None or new is None:
        return None
    before, after = dict(_flat(old)), dict(_flat(new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    told = [f"{name}: {before.get(name, _NOTHING)} → {after.get(name, _NOTHING)}" for name in names]
    return tuple(told[:CHANGES_MAX])


def _is_same_place(one: WorkloadView, other: WorkloadView) -> bool:
    a, b = one.workload, other.workload
    if any(getattr(a, name) != getattr(b, name) for name in _SAME):
        return False
    is_same_pod = a.pod is not None and a.pod == b.pod
    return one.id == other.id or is_same_pod or (a.gpu_uuid is not None and a.gpu_uuid == b.gpu_uuid)


def _flat(config: EngineConfig) -> Iterator[tuple[str, str]]:
    for f in fields(config):
        value = getattr(config, f.name)
        if isinstance(value, Mapping):
            yield from ((name if f.name == "settings" else f"${name}", str(v)) for name, v in value.items())
        elif isinstance(value, tuple):
            yield f.name.replace("_", " "), ", ".join(map(str, value))
        elif value is not None:
            yield f.name.replace("_", " "), str(value)
