"""Where the engine's own counts and the probe's disagree, so that neither is believed blindly."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from replaywatch.agent.measures import MODES
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Observation, Phase, Window, Workload

# A share of fewer steps, or a difference of fewer points, can be the edges of two unlike windows.
LEAST_STEPS: Final = 50
LEAST_DIFFERENCE: Final = 0.10
# Some witnesses tell of a sample of the steps: so many standard deviations of its share are no difference.
SAMPLE_DEVIATIONS: Final = 3.0
# What a witness tells was done up to two of its intervals ago (a log sums up, then is read), and the probe's frames
# with the same steps may come later. Two intervals on both sides also show what a change of load led from and to.
INTERVALS: Final = 5
HELD: Final = 2
# More processes than a node has; a witness that has fallen silent must not cost memory for ever.
MOST_PARTS: Final = 4096
KIND: Final = "witness_contradicts"
# The probe's engine adapters name every phase but decode, which is what such an engine does all day.
DECODE_UNNAMED: Final = frozenset({"vllm", "sglang", "trtllm"})
# SGLang counts a batch that holds both as a prefill.
MIXED_IS_PREFILL: Final = frozenset({"sglang"})
# The main model, whole or a stage of it: what witnesses count. Drafts and encoders have other names.
MAIN: Final = re.compile(r"target|stage \d+")
# Steps by mode of each process and phase, with the replica where it is known, heard between two words of a witness.
Part = tuple[Workload, "int | None"]
Interval = dict[Part, Counter[str]]


@dataclass(slots=True)
class Hearing:
    """What one witness told, and what probes saw around it. Shape: oldest first, the last of `probed` still open."""

    told: deque[Sequence[Window]] = field(default_factory=lambda: deque(maxlen=HELD))
    probed: deque[Interval] = field(default_factory=lambda: deque([{}], maxlen=INTERVALS))


class Contradictions:
    """Sets what witnesses tell against what probes saw, each witness by itself.

    Neither cuts time as the other does, so a witness is contradicted only by a share that no process of its model had
    in any interval around. The first word of a witness is never compared: it may be older than the agent.
    """

    def __init__(self) -> None:
        self._hearings: dict[str, Hearing] = {}

    def hear_probe(self, windows: Iterable[Window], configs: Mapping[str, EngineConfig]) -> None:
        """Add a probe's windows, with the configurations that they point to as far as they are known."""
        for window in windows:
            if window.dispatch.steps is None or not _is_main(window.workload):
                continue
            known = {mode: n for mode, n in window.dispatch.steps.items() if mode in MODES}
            who = replace(window.workload, phase=_phase(window.workload))
            part = who, _replica(who, configs.get(window.config_id or ""))
            for hearing in self._hearings.values():
                interval = hearing.probed[-1]
                if part in interval or len(interval) < MOST_PARTS:
                    interval.setdefault(part, Counter()).update(known)

    def against(self, witness: str, windows: Sequence[Window]) -> list[Observation | None]:
        """What contradicts the witness's word before the last, at the last of these windows of the same workload."""
        hearing = self._hearings.get(witness)
        if hearing is None:
            self._hearings[witness] = Hearing()
            return [None] * len(windows)
        found = _compare_all(hearing)
        hearing.told.append(windows)
        hearing.probed.append({})
        last = {window.workload: at for at, window in enumerate(windows)}
        return [found.get(w.workload) if last[w.workload] == at else None for at, w in enumerate(windows)]


def _is_main(of: Workload) -> bool:
    return of.component is None or MAIN.fullmatch(of.component) is not None


def _replica(of: Workload, config: EngineConfig | None) -> int | None:
    """The data-parallel replica of a process, which is a witness's rank; None where it cannot be told."""
    if of.rank is None or config is None or (config.data_parallel_size or 1) < 2:
        return None
    tensors = config.tensor_parallel_size or 1
    if of.engine == "vllm":
        stages = config.settings.get("pipeline_parallel_size", "1")
        return of.rank // (tensors * int(stages)) if stages.isdecimal() and int(stages) else None
    if of.engine == "sglang" and config.settings.get("enable_dp_attention") == "True":
        return of.rank * (config.data_parallel_size or 1) // tensors
    return None


def _phase(of: Workload) -> Phase | None:
    if of.phase is None and of.engine in DECODE_UNNAMED:
        return "decode"
    return "prefill" if of.phase == "mixed" and of.engine in MIXED_IS_PREFILL else of.phase


def _compare_all(hearing: Hearing) -> dict[Workload, Observation]:
    if len(hearing.probed) < INTERVALS:
        return {}
    told: dict[Workload, Counter[str]] = {}
    for window in hearing.told[0]:
        if _is_main(window.workload):
            told.setdefault(window.workload, Counter()).update(window.dispatch.steps or {})
    # A log that sums up all replicas (vLLM with --aggregate-engine-logging) stands under the first of them.
    by_replica = all(window.origin != "log" for window in hearing.told[0])
    found = (
        (who, _compare(who if by_replica else replace(who, rank=None), steps, hearing.probed))
        for who, steps in told.items()
    )
    return {who: Observation(KIND, detail, 1, "agent") for who, detail in found if detail is not None}


def _compare(witness: Workload, told: Counter[str], probed: Iterable[Interval]) -> str | None:
    if told.total() < LEAST_STEPS:
        return None
    same = [{part: n for part, n in interval.items() if _is_of(part, witness)} for interval in probed]
    phases = {who.phase for interval in same for (who, _), steps in interval.items() if steps.total()}
    # Silence of the probe says something only where a probe is in this engine at all, and tells phases apart.
    if not phases or (witness.phase is not None and None in phases):
        return None
    named = witness.phase or "all"
    if witness.phase is not None and witness.phase not in phases:
        return f"the engine counts {told.total()} {named} steps, the probe none: it does not see them"
    shares = [_graph_share(n) for i in same for n in _by_process(i, witness.phase) if n.total() >= LEAST_STEPS]
    if not shares:
        return None
    share = _graph_share(told)
    nearest = min(max(share, min(shares)), max(shares))
    deviation = math.sqrt(nearest * (1 - nearest) / told.total())
    if abs(share - nearest) < max(LEAST_DIFFERENCE, SAMPLE_DEVIATIONS * deviation):
        return None
    return f"the engine counts {share:.0%} of {named} steps as replayed, the probe {nearest:.0%}"


def _is_of(part: Part, witness: Workload) -> bool:
    """Whether a process runs the engine, model and replica of a witness, as far as both name one."""
    who, replica = part
    names = {_bare(name) for name in (who.model_name, witness.model_name) if name is not None}
    replicas = {number for number in (replica, witness.rank) if number is not None}
    return who.engine == witness.engine and len(names) < 2 and len(replicas) < 2


def _bare(model_name: str) -> str:
    """A model's name without folder or owner, at most as long as the probe tells it."""
    return model_name.rstrip("/").rpartition("/")[2][:128]


def _by_process(interval: Interval, phase: Phase | None) -> Iterable[Counter[str]]:
    """Steps of each process in one phase; a witness without phases counts all of them together."""
    seen: dict[Workload, Counter[str]] = {}
    for (who, _), steps in interval.items():
        if phase in (who.phase, None):
            seen.setdefault(replace(who, phase=None), Counter()).update(steps)
    return seen.values()


def _graph_share(steps: Counter[str]) -> float:
    return 1 - steps["eager"] / steps.total()
