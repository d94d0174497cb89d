"""Something changed from one window to the next, at equal load, and costs time."""

from __future__ import annotations

from math import sqrt
from typing import ClassVar, Final

from replaywatch.contract.verdict import (
    Blind,
    Cause,
    Estimate,
    EvidenceItem,
    Finding,
    Healthy,
    Severity,
    Verdict,
    WarmingUp,
    severity_rank,
)
from replaywatch.detectors import readings
from replaywatch.detectors.channels import BY_NAME
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.levels import WARM_WINDOWS
from replaywatch.detectors.outliers import TOLD_WINDOWS
from replaywatch.detectors.shifts import AVERAGED_WINDOWS, Channel, Shift
from replaywatch.detectors.sudden_state import SuddenState
from replaywatch.detectors.surroundings import changes

# Channels that speak of graphs: what they lose, graphs bring back.
_GRAPHS: Final = ("unreplayed_ratio", "coverage", "captures_per_step")
_PAUSES: Final = {"pause_ratio", "window_seconds"}
_ORDER: Final = tuple(BY_NAME)


class Sudden:
    """Step time, replay time, gaps, pauses, replayed share, coverage, captures or graph memory shifted for the worse.

    Times are compared with what the same workload took at the same load before. Severity from the share of the step
    that is lost, its low end; a shift that costs no step time is information. Warm-up: two minutes at a load; while no
    load is warm, two minutes at all loads together, and then only what is far beyond them is told.

    Bad at: slow drift, which is learnt; a load never seen before, of which little is claimed; longer contexts at equal
    batch look like a slower step; what was wrong from the start, which other detectors judge.
    """

    name: ClassVar[str] = "sudden"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        state = evidence.sudden
        if state is None or not any(c.levels for c in state.channels):
            return Blind(self.name, "nothing was followed over time")
        shifted = sorted((c for c in state.channels if c.shift is not None), key=lambda c: _ORDER.index(c.name))
        if shifted:
            return self._finding(evidence, state, shifted)
        if not any(c.is_warm for c in state.channels):
            return WarmingUp(self.name, f"{max(1, WARM_WINDOWS - state.windows)} more windows at one load")
        if state.joint.outside >= TOLD_WINDOWS:
            return self._unusual(evidence, state)
        return Healthy(self.name, f"no shift in {state.windows} windows")

    def _finding(self, evidence: Evidence, state: SuddenState, shifted: list[Channel]) -> Finding:
        estimate = _estimate(state, shifted)
        severity = _severity(shifted, estimate)
        first = min(shifted, key=lambda c: (_rank(c, estimate), _ORDER.index(c.name)))
        shift = min((c.shift for c in shifted if c.shift is not None), key=lambda s: s.since_ns)
        causes = changes(shift.around, shift.then) or (
            Cause("nothing else that is watched changed at that moment", 0.2, "surroundings"),
        )
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"Sudden change: {_told(first)}",
            evidence=(
                *(i for c in shifted for i in _items(c)),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=causes,
            remedy=_remedy(causes, first.name),
            is_fault=severity != "info",
        )

    def _unusual(self, evidence: Evidence, state: SuddenState) -> Finding:
        joint = state.joint
        edge = joint.ellipse.edge if joint.ellipse is not None else 0.0
        items = tuple(
            EvidenceItem(f"{BY_NAME[c.name].words}, sigmas from usual", round(c.residual, 1), "", "recent windows")
            for c in state.channels
            if c.residual is not None and joint.ellipse is not None and c.name in joint.ellipse.names
        )
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"An unusual combination of figures for {joint.outside} windows, though none is odd alone",
            evidence=(
                *items,
                EvidenceItem("squared distance", round(joint.distance, 1), "", "robust covariance"),
                EvidenceItem("usual up to", round(edge, 1), "", "robust covariance"),
            ),
            is_fault=False,
        )


def _estimate(state: SuddenState, shifted: list[Channel]) -> Estimate | None:
    """The share of the step that is lost, from the channel that shows most; None where no time is lost."""
    step = next((c.shift.after for c in shifted if c.name == "step_us" and c.shift), None) or _usual_step(state)
    about_graphs = any(c.name in _GRAPHS for c in shifted)
    found = [e for c in shifted if c.shift and (e := _lost(c.name, c.shift, step, about_graphs)) is not None]
    return max(found, key=lambda e: e.low, default=None)


def _lost(name: str, shift: Shift, step_us: float | None, about_graphs: bool) -> Estimate | None:
    excess, doubt = shift.after - shift.before, 2 * shift.sigma / sqrt(min(max(1, shift.windows - 1), AVERAGED_WINDOWS))
    if name == "step_us":
        whole = shift.after
    elif name in ("replay_us", "gap_us", "launch_us") and step_us:
        whole = max(step_us, shift.after)
    elif name == "pause_ratio":
        whole = 1.0
    else:
        return None
    if whole <= 0:
        return None
    return Estimate(
        ratio=min(1.0, max(0.0, excess / whole)),
        low=min(1.0, max(0.0, (excess - doubt) / whole)),
        high=min(1.0, max(0.0, (excess + doubt) / whole)),
        step_us=step_us,
        method=f"{BY_NAME[name].words}, before and after",
        is_recoverable=about_graphs and name == "step_us",
    )


def _usual_step(state: SuddenState) -> float | None:
    levels = next((c.levels for c in state.channels if c.name == "step_us"), ())
    return max(levels, key=lambda level: level.n).value if levels else None


def _severity(shifted: list[Channel], estimate: Estimate | None) -> Severity:
    """From what is lost. A pause alone may be a lull, so it is a warning at most; so is a process that was silent."""
    severity: Severity = "info"
    if estimate is not None:
        severity = max(severity, estimate.severity, key=severity_rank)
        if {c.name for c in shifted} <= _PAUSES:
            severity = min(severity, "warn", key=severity_rank)
    steps_known = any(c.name in ("step_us", "pause_ratio") for c in shifted)
    silent = any(c.name == "window_seconds" for c in shifted)
    lost_sight = estimate is None and any(c.name == "unreplayed_ratio" for c in shifted) and not steps_known
    return max(severity, "warn", key=severity_rank) if silent or lost_sight else severity


def _rank(channel: Channel, estimate: Estimate | None) -> int:
    """The channel that the title tells: the one that the estimate is from, else the first."""
    return 0 if estimate is not None and estimate.method.startswith(BY_NAME[channel.name].words) else 1


def _amount(name: str, value: float) -> str:
    kind = BY_NAME[name]
    if kind.kind == "ratio":
        return readings.percent(value)
    if kind.kind == "bytes":
        return f"{value / 2**30:.2f} GiB"
    return f"{value:.1f} s" if name == "window_seconds" else f"{value:.0f} us"


def _told(channel: Channel) -> str:
    shift = channel.shift
    assert shift is not None
    words = BY_NAME[channel.name].words
    return f"{words} went from {_amount(channel.name, shift.before)} to {_amount(channel.name, shift.after)}"


def _items(channel: Channel) -> tuple[EvidenceItem, ...]:
    shift, kind = channel.shift, BY_NAME[channel.name]
    assert shift is not None
    unit = {"ratio": "ratio", "bytes": "bytes", "time": "us"}[kind.kind]
    unit = "s" if kind.name == "window_seconds" else unit
    return (
        EvidenceItem(f"{kind.words}, before", round(shift.before, 4), unit, "earlier windows at this load"),
        EvidenceItem(f"{kind.words}, since", round(shift.after, 4), unit, "recent windows"),
        EvidenceItem(f"{kind.words}, windows since", shift.windows, "", "recent windows"),
    )


_REMEDIES: Final = {
    "another process": "Give the workload its device back, or count on the slower step: see which process joined it.",
    "the device's clock": "Look at power, temperature and clocks of the device (nvidia-smi -q -d PERFORMANCE).",
    "the host became": "Look at what else runs on the host, its clocks, and threads that hold the interpreter lock.",
    "the engine's configuration": "Compare the two configurations; see whether going back brings the time back.",
    "software or device": "Compare the two versions; see whether going back brings the time back.",
    "steps fall back": "Find out why steps fall back since then; the reason names the setting.",
}


def _remedy(causes: tuple[Cause, ...], name: str) -> str:
    for start, remedy in _REMEDIES.items():
        if causes[0].text.startswith(start):
            return remedy
    if name in ("pause_ratio", "window_seconds"):
        return "Look at the host: a stopped or starved process, a collector pause, a full queue, no requests."
    return "Look at what was deployed, and at the logs of engine and host, at that moment."
