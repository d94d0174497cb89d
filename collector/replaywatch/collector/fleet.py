"""What the last tick knew of every workload, frozen; page, API and metrics read this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Estimate, Severity, severity_rank
from replaywatch.contract.window import Window, Workload
from replaywatch.detectors.judge import Judgement

_VERDICT_ORDER: Final = ("finding", "blind", "warming_up", "healthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """One workload as of the last tick. A stale one sent nothing lately; its judgement is its last one.

    Shape: `trail` holds (end_ns, share of steps replayed), oldest first.
    """

    id: str
    workload: Workload
    first_seen_ns: int
    last_seen_ns: int
    is_stale: bool
    judgement: Judgement
    recent: Window
    lifetime: Window
    config: EngineConfig | None
    fingerprint: Fingerprint | None
    trail: tuple[tuple[int, float], ...]

    @property
    def word(self) -> str:
        """The verdict, or `stale` where nothing came lately."""
        return "stale" if self.is_stale else self.judgement.verdict

    @property
    def severity(self) -> Severity:
        """Severity of the judgement; none for a stale workload."""
        return "none" if self.is_stale else self.judgement.severity

    @property
    def estimate(self) -> Estimate | None:
        """What is recoverable: by the worst fault that says so, else by the judgement as a whole."""
        faults = (f.estimate for f in self.judgement.findings if f.is_fault and f.estimate is not None)
        return next(faults, self.judgement.estimate)

    @property
    def device(self) -> tuple[str, ...]:
        """What the workload shares with others on the same device; its own id where the device is unknown."""
        w = self.workload
        if w.gpu_uuid is not None:
            return ("uuid", w.gpu_uuid)
        if w.gpu_index is not None and w.node is not None:
            return ("index", w.node, str(w.gpu_index))
        return ("workload", self.id)


@dataclass(frozen=True, slots=True)
class Loss:
    """Devices' worth of time that graphs would bring back: estimate and interval, out of how many devices seen."""

    devices: int
    gpus: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FleetView:
    """All workloads as of one tick, those that need people first."""

    at_ns: int = 0
    workloads: tuple[WorkloadView, ...] = ()
    by_id: Mapping[str, WorkloadView] = field(default_factory=dict)

    @staticmethod
    def of(at_ns: int, views: Iterable[WorkloadView]) -> FleetView:
        """The fleet, sorted."""
        ordered = tuple(sorted(views, key=_need))
        return FleetView(at_ns, ordered, {v.id: v for v in ordered})

    @property
    def loss(self) -> Loss:
        """What workloads with a fault lose now; on a device that several share, the largest counts."""
        worst: dict[tuple[str, ...], tuple[float, float, float]] = {}
        devices = set()
        for view in self.workloads:
            if view.is_stale:
                continue
            devices.add(view.device)
            estimate = view.estimate
            if view.judgement.verdict == "finding" and estimate is not None:
                ratios = (max(0.0, estimate.ratio), max(0.0, estimate.low), max(0.0, estimate.high))
                worst[view.device] = max(worst.get(view.device, (0.0, 0.0, 0.0)), ratios)
        ratio, low, high = (sum(values) for values in zip(*worst.values(), strict=True)) if worst else (0.0, 0.0, 0.0)
        return Loss(len(devices), ratio, low, high)


Views = Callable[[], FleetView]


def _need(view: WorkloadView) -> tuple[int, int, int, float, str, str]:
    estimate = view.estimate
    return (
        1 if view.is_stale else 0,
        -severity_rank(view.severity),
        _VERDICT_ORDER.index(view.judgement.verdict),
        -(estimate.ratio if estimate is not None else 0.0),
        view.workload.label,
        view.id,
    )
