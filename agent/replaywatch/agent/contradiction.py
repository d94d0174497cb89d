"""Where the engine's own counts and the probe's disagree, so that neither is believed blindly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from replaywatch.agent.measures import MODES
from replaywatch.contract.window import Observation, Window

# A share of fewer steps, or a difference of fewer points, can be the edges of two unlike windows.
LEAST_STEPS: Final = 50
LEAST_DIFFERENCE: Final = 0.10
KIND: Final = "witness_contradicts"
# The probe's engine adapters name every phase but decode, which is what such an engine does all day.
DECODE_UNNAMED: Final = frozenset({"vllm", "sglang", "trtllm"})
Group = tuple[str, str | None]


class Contradictions:
    """Adds up what probes saw until a witness speaks of the same time. Shape: groups are engine and phase."""

    def __init__(self) -> None:
        self._probed: dict[Group, Counter[str]] = {}

    def hear_probe(self, windows: Iterable[Window]) -> None:
        """Add a probe's windows."""
        for window in windows:
            if window.dispatch.steps is not None:
                known = {mode: n for mode, n in window.dispatch.steps.items() if mode in MODES}
                self._probed.setdefault(_group(window), Counter()).update(known)

    def against(self, witnesses: Iterable[Window]) -> list[Observation | None]:
        """For each window of a witness what contradicts it, and begin to count anew."""
        probed, self._probed = self._probed, {}
        return [_compare(window, probed) for window in witnesses]


def _group(window: Window) -> Group:
    engine, phase = window.workload.engine, window.workload.phase
    return (engine, phase or ("decode" if engine in DECODE_UNNAMED else None))


def _seen_in(witness: Window, probed: dict[Group, Counter[str]]) -> Counter[str]:
    engine, phase = witness.workload.engine, witness.workload.phase
    seen = Counter[str]()
    for (of, during), steps in probed.items():
        # A witness without phases counts all of them together.
        if of == engine and phase in {during, None}:
            seen.update(steps)
    return seen


def _compare(witness: Window, probed: dict[Group, Counter[str]]) -> Observation | None:
    told = Counter(witness.dispatch.steps or {})
    # Silence of the probe says something only where a probe is in this engine at all.
    if told.total() < LEAST_STEPS or not any(engine == witness.workload.engine for engine, _ in probed):
        return None
    seen = _seen_in(witness, probed)
    phase = witness.workload.phase or "all"
    if not seen.total():
        if any(engine == witness.workload.engine and phase is None for engine, phase in probed):
            return None  # the probe does not tell phases apart
        return _observation(f"the engine counts {told.total()} {phase} steps, the probe none: it does not see them")
    difference = abs(_graph_share(told) - _graph_share(seen))
    if seen.total() < LEAST_STEPS or difference < LEAST_DIFFERENCE:
        return None
    return _observation(
        f"the engine counts {_graph_share(told):.0%} of {phase} steps as replayed, the probe {_graph_share(seen):.0%}"
    )


def _graph_share(steps: Counter[str]) -> float:
    return 1 - steps["eager"] / steps.total()


def _observation(detail: str) -> Observation:
    return Observation(KIND, detail, 1, "agent")
