"""One run of one engine as its log tells it: who, how configured, how far it came, and what was counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Engine, Phase, Window, Workload
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.tally import Tally

# vLLM's workers of 0.9 repeat what the main process, which has no name, says of rank 0.
_FOLLOWER = "VllmWorkerProcess"
Part = tuple["str | None", "Phase | None"]


@dataclass(slots=True)
class EngineRun:
    """From one start of an engine (one data-parallel replica of it) to its end.

    API server, engine core and tensor-parallel workers speak of the same run. What several ranks repeat is counted
    once: the first rank that is heard leads, and an observation belongs to whoever made it first. A rank whose steps
    contradict the leader's becomes a workload of its own.
    """

    engine: Engine
    config: EngineConfig = field(default_factory=EngineConfig)
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    pod: str | None = None
    container: str | None = None
    namespace: str | None = None
    pid: int | None = None
    replica: int | None = None
    main_phase: Phase | None = None
    phase_configs: dict[Phase, EngineConfig] = field(default_factory=dict)
    started: bool = False
    ready: bool = False
    capturing: bool = False
    stopping: bool = False
    died: bool = False
    dispatch_seen: bool = False
    milestone: str | None = None
    last_exception: str | None = None
    quiet_lines: int = 0
    planned_graphs: int | None = None
    bar_graphs: int = 0
    bar_ns: int = 0
    bar_is_done: bool = False
    capture_failure_counted: bool = False
    start_ns: int | None = None
    end_ns: int | None = None
    opened_ns: int | None = None
    _leader: int | None = None
    _tallies: dict[Part, dict[int, Tally]] = field(default_factory=dict)
    _reporters: dict[tuple[str, str], tuple[str | None, int | None, str | None]] = field(default_factory=dict)

    def tally(self, line: LogLine, phase: Phase | None = None, component: str | None = None) -> Tally:
        """Where to count what a line says."""
        if self._leader is None and line.process != _FOLLOWER:
            self._leader = line.rank
        return self._counted((component, phase or self.main_phase), self._lane(line))

    def _counted(self, part: Part, lane: int) -> Tally:
        lanes = self._tallies.setdefault(part, {})
        tally = lanes.get(lane)
        if tally is None:
            tally = lanes[lane] = Tally()
        return tally

    def leads(self, line: LogLine) -> bool:
        """Whether a line comes from the rank whose repeated facts count."""
        if line.process == _FOLLOWER:
            return False
        return line.rank is None or self._leader is None or line.rank == self._leader

    def _lane(self, line: LogLine) -> int:
        """The leader's lane is 0, others are their rank plus one."""
        return 0 if self.leads(line) or line.rank is None else line.rank + 1

    def observe(
        self,
        kind: str,
        detail: str,
        line: LogLine,
        *,
        where: str | None = None,
        phase: Phase | None = None,
        component: str | None = None,
    ) -> None:
        """Count an observation unless another process already speaks of the same."""
        key = (kind, detail)
        process, rank, first_where = self._reporters.setdefault(key, (line.process, line.rank, where or line.where))
        if (process, rank) != (line.process, line.rank):
            return
        self._counted((component, phase or self.main_phase), 0).observe(kind, detail, where or first_where)

    def configure(self, phase: Phase | None = None, **changes: object) -> None:
        """Change fields of the configuration, of one phase where phases are configured apart."""
        if phase is not None and phase != self.main_phase:
            before = self.phase_configs.get(phase, EngineConfig(engine=self.engine))
            self.phase_configs[phase] = replace(before, **changes)  # type: ignore[arg-type]
        else:
            self.config = replace(self.config, **changes)  # type: ignore[arg-type]

    def setting(self, name: str, value: str) -> None:
        """Remember a setting that people ask about."""
        self.config = replace(self.config, settings={**self.config.settings, name: value})

    def identify(self, **changes: object) -> None:
        """Change fields of the fingerprint."""
        self.fingerprint = replace(self.fingerprint, **changes)  # type: ignore[arg-type]

    def resolve(self, mode: str, reason: str | None, *, asked: str | None = None) -> None:
        """The engine settled on a mode other than asked for."""
        requested = self.config.requested_mode or asked
        self.configure(
            requested_mode=requested,
            resolved_mode=mode,
            mode_reason=reason or self.config.mode_reason,
            graphs_enabled=mode.upper() not in ("NONE", "DISABLED"),
        )

    def serving(self) -> None:
        """The engine answers requests."""
        self.ready, self.capturing, self.quiet_lines = True, False, 0
        self.last_exception = None

    def workload(self, name: str, part: Part, rank: int | None = None) -> Workload:
        """Identity of one part of this run."""
        component, phase = part
        replica = self.replica if (self.config.data_parallel_size or 1) > 1 else None
        return Workload(
            name=name,
            namespace=self.namespace,
            pod=self.pod,
            container=self.container,
            pid=self.pid,
            rank=rank if rank is not None else replica,
            engine=self.engine,
            model_name=self.fingerprint.model_name,
            component=component,
            phase=phase,
        )

    def drain(self) -> Iterator[tuple[Part, int | None, Tally]]:
        """Parts with something to say since the last call, with the rank where ranks contradict each other."""
        tallies, self._tallies = self._tallies, {}
        for part, lanes in tallies.items():
            leader = lanes.get(0, Tally())
            for lane, tally in sorted(lanes.items()):
                if lane == 0 and not tally.is_empty:
                    yield part, None, tally
                elif lane > 0 and _contradicts(leader, tally):
                    yield part, lane - 1, tally

    def config_of(self, window: Window) -> EngineConfig:
        """The configuration that applies to a window's phase."""
        phase = window.workload.phase
        return self.phase_configs.get(phase, self.config) if phase is not None else self.config


def _contradicts(leader: Tally, other: Tally) -> bool:
    if leader.steps and other.steps and not set(leader.steps) & set(other.steps):
        return True
    return bool(other.captures.get("failed")) and not leader.captures.get("failed")
