"""Which run of which engine a line speaks of, among all that one pod and container wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from replaywatch.contract.window import Engine
from replaywatch.sources.logs.engines import starts_a_run
from replaywatch.sources.logs.inductor import SkipReader
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

_ENGINE = re.compile(r"Engine (\d{3}): ")
_ENGINES = re.compile(r"Engine \d{3}: |\d+ Engines Aggregated: ")
_MAX_PARTIAL_CHARS = 1 << 16
Origin = tuple["str | None", "str | None"]


@dataclass(slots=True)
class Place:
    """At most one engine at a time, with its data-parallel replicas."""

    engine: Engine | None = None
    runs: dict[int | None, EngineRun] = field(default_factory=dict)
    last: EngineRun | None = None
    skips: SkipReader = field(default_factory=SkipReader)
    partial: str = ""
    named: int | None = None

    def completes(self, line: LogLine) -> bool:
        """Put lines together that a container runtime cut; False while the end is still missing."""
        if line.partial and len(self.partial) < _MAX_PARTIAL_CHARS:
            self.partial += line.message
            return False
        if self.partial:
            line.message, self.partial = self.partial + line.message, ""
        return True

    def route(self, line: LogLine, claimed: Engine | None) -> tuple[EngineRun | None, list[EngineRun]]:
        """The run that a line speaks of, and the runs that it ends. `claimed` is the engine that wrote it, if known."""
        ended = self._switch(claimed) if claimed is not None and claimed != self.engine else []
        if self.engine is None:
            return None, ended
        replica = self._replica_of(line)
        run = self._run(self.engine, replica, line)
        if starts_a_run(self.engine, line) and (run.ready or run.died or run.stopping or run.milestone is not None):
            over = list(self.runs.values()) if line.replica is None else [run]
            ended += over
            self.runs = {key: kept for key, kept in self.runs.items() if not any(kept is r for r in over)}
            run = self._run(self.engine, replica, line)
        if line.process is None or line.process.startswith("EngineCore") or self.engine != "vllm":
            run.pid = line.pid if line.pid is not None else run.pid
        run.pod, run.container = line.pod, line.container
        run.namespace = line.namespace or run.namespace
        self.last = run
        return run, ended

    def _switch(self, claimed: Engine) -> list[EngineRun]:
        """Lines of torch belong to the engine around it; another engine in the same place ends the first."""
        if claimed == "torch" and self.engine is not None:
            return []
        ended: list[EngineRun] = []
        if self.engine == "torch":
            for run in self.runs.values():
                run.engine = claimed
        else:
            ended, self.runs = list(self.runs.values()), {}
        self.engine = claimed
        return ended

    def _replica_of(self, line: LogLine) -> int | None:
        """Data-parallel replica; vLLM's API server names it as `Engine 001:`, and means it in the table below too."""
        if line.replica is not None or self.engine != "vllm" or len(self.runs) < 2:
            return line.replica
        if _ENGINES.match(line.message):
            named = _ENGINE.match(line.message)
            self.named = int(named[1]) if named else None
            return self.named
        return self.named if line.message.startswith("|") else None

    def _run(self, engine: Engine, replica: int | None, line: LogLine) -> EngineRun:
        runs = self.runs
        if replica is None and runs:
            spoken = self.last if line.process is None and any(self.last is run for run in runs.values()) else None
            return spoken or next(iter(runs.values()))
        if replica in runs:
            return runs[replica]
        if replica is not None and list(runs) == [None]:  # the first core of an engine known from its API server
            run = runs[replica] = runs.pop(None)
            run.replica = replica
            return run
        run = runs[replica] = self._another(engine, replica)
        return run

    def _another(self, engine: Engine, replica: int | None) -> EngineRun:
        """One more replica, which shares what is known of the first."""
        run = EngineRun(engine=engine, replica=replica)
        first = next(iter(self.runs.values()), None)
        if first is not None:
            first.configure(data_parallel_size=max(first.config.data_parallel_size or 0, len(self.runs) + 1))
            run.config, run.fingerprint, run.started = first.config, first.fingerprint, first.started
            run.main_phase, run.phase_configs = first.main_phase, dict(first.phase_configs)
        return run
