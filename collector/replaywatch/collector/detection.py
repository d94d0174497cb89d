"""The detection tick: new windows in, judgements, incidents and a fleet view out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from replaywatch.collector.fleet import FleetView, WorkloadView
from replaywatch.collector.hysteresis import Policy
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.incidents import open_members
from replaywatch.collector.memory import WorkloadMemory
from replaywatch.collector.peer_book import PeerBook
from replaywatch.collector.recording import Telling, record
from replaywatch.collector.roster import Roster
from replaywatch.collector.silence_watch import Nodes, SilenceWatch
from replaywatch.collector.store import Store
from replaywatch.collector.tick_times import TickTimes
from replaywatch.collector.tracker import IncidentTracker, Plan
from replaywatch.collector.writer import Writer
from replaywatch.contract.verdict import Blind
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import Judgement

LOG = logging.getLogger("replaywatch.collector")
Clock = Callable[[], int]
Judge = Callable[[Evidence], Judgement]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionSettings:
    """Durations in nanoseconds, and when incidents open and close."""

    horizon_ns: int
    stale_ns: int
    gone_ns: int
    checkpoint_ns: int
    agent_silent_ns: int
    workloads_max: int
    policy: Policy


class Detection:
    """Judges every workload that windows came from, tick by tick; one thread calls it."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        inbox: Inbox,
        judge: Judge,
        settings: DetectionSettings,
        clock: Clock,
        telling: Telling,
        partition: int = 0,
        nodes: Nodes | None = None,
        times: TickTimes | None = None,
    ) -> None:
        self._writer = writer
        self._inbox = inbox
        self._judge = judge
        self._settings = settings
        self._clock = clock
        self._telling = telling
        self._partition = partition
        self._started_ns = self._checkpointed_ns = clock()
        self._silence_watch = SilenceWatch(settings.agent_silent_ns)
        self._nodes: Nodes = nodes if nodes is not None else lambda: self._roster.memories.values()
        self._judgements: dict[str, tuple[Evidence, Judgement]] = {}
        self._peers = PeerBook()
        with store.reading() as session:
            self._tracker = IncidentTracker(settings.policy, open_members(session, partition))
        self._roster = Roster(store, settings.horizon_ns, partition)
        self._roster.restore(self._started_ns - settings.gone_ns, self._tracker.workload_ids())
        self.view = FleetView()
        self.open_severities = self._tracker.open_severities()
        self.last_tick_ns: int | None = None
        self.times = times if times is not None else TickTimes()

    def tick(self) -> FleetView:
        """Take in what came, judge, move incidents, publish. Raises: StoreError; what came is judged again then."""
        began = time.perf_counter()
        now_ns = self._clock()
        self._absorb()
        self._roster.find_snapshots()
        plan = Plan()
        fresh, gone = self._survey(plan, now_ns)
        if plan.moves:
            ids = self._writer.do(lambda session: record(session, plan.moves, now_ns, self._telling, self._partition))
        else:
            ids = []
        self._tracker.adopt(plan, ids)
        for memory in fresh:
            memory.is_fresh = False
        self._tidy(gone, now_ns)
        self._publish(now_ns, time.perf_counter() - began)
        return self.view

    def close(self) -> None:
        """Write down what is remembered. Raises: StoreError."""
        self._absorb()
        self._roster.checkpoint(self._writer)

    def has_room_for(self, keys: Iterable[str]) -> bool:
        """Whether workloads may come in: known ones always, new ones while there is room. For any thread."""
        crowded = len(self._roster.memories) >= self._settings.workloads_max
        return not crowded or all(self._roster.knows(key) for key in keys)

    def _absorb(self) -> None:
        # What comes meanwhile waits for the next tick: under a flood this one would never end.
        for _ in range(self._inbox.waiting):
            stored = self._inbox.first()
            if stored is None:
                break
            self._roster.absorb(stored)
            self._inbox.drop_first()
        self._roster.settle()

    def _survey(self, plan: Plan, now_ns: int) -> tuple[list[WorkloadMemory], list[WorkloadMemory]]:
        """Judge what is fresh and notice what is silent; the fresh memories and those that are gone."""
        fresh, gone = [], []
        evidence = self._gather_evidence(now_ns)
        for memory in self._roster.memories.values():
            if memory.is_fresh:
                fresh.append(memory)
                judged = self._judge_memory(memory, evidence)
                if judged is not None:
                    config_id = judged[0].lifetime.config_id
                    self._tracker.observe(plan, memory.id, memory.workload, judged[1], config_id)
            elif memory.id not in self._judgements:
                self._judge_memory(memory, evidence)
            silent_ns = now_ns - max(memory.last_seen_ns, self._started_ns)
            is_gone = silent_ns > self._settings.gone_ns
            if silent_ns > self._settings.stale_ns:
                self._tracker.silence(plan, memory.id, memory.workload, is_gone=is_gone)
            if is_gone:
                gone.append(memory)
        self._silence_watch.look(self._tracker, plan, self._nodes(), now_ns, self._started_ns)
        return fresh, gone

    def _gather_evidence(self, now_ns: int) -> dict[str, Evidence]:
        """Evidence of everything that is to be judged, and cohorts of peers from it: one pass over the fleet."""
        gathered: dict[str, Evidence] = {}
        for memory in self._roster.memories.values():
            if not memory.is_fresh and memory.id in self._judgements:
                continue
            evidence = self._roster.evidence(memory)
            if evidence is not None:
                gathered[memory.id] = evidence
                self._note(memory, evidence)
        self._peers.make_cohorts(now_ns - self._settings.stale_ns)
        return gathered

    def _note(self, memory: WorkloadMemory, evidence: Evidence) -> None:
        try:
            self._peers.note(memory.id, evidence, memory.last_seen_ns)
        except (ArithmeticError, ValueError):
            self._peers.forget(memory.id)

    def _judge_memory(self, memory: WorkloadMemory, gathered: dict[str, Evidence]) -> tuple[Evidence, Judgement] | None:
        evidence = gathered.get(memory.id)
        if evidence is None:
            return None
        evidence = replace(evidence, peers=self._peers.peers_of(memory.id))
        judged = self._judgements[memory.id] = (evidence, self._judge_or_blind(evidence))
        return judged

    def _judge_or_blind(self, evidence: Evidence) -> Judgement:
        """The judgement; figures that no detector was ready for make one workload blind and stop no other."""
        try:
            return self._judge(evidence)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            LOG.exception("the detectors failed on workload %s", evidence.workload.label)
            told = Blind("detectors", f"the detectors failed on what this workload sent ({type(error).__name__})")
            return Judgement(evidence.workload, "blind", "none", (), (), (), (told,), None)

    def _tidy(self, gone: list[WorkloadMemory], now_ns: int) -> None:
        if gone or now_ns - self._checkpointed_ns >= self._settings.checkpoint_ns:
            self._roster.checkpoint(self._writer)
            self._checkpointed_ns = now_ns
        for memory in gone:
            self._roster.forget(memory.id)
            self._judgements.pop(memory.id, None)
            self._peers.forget(memory.id)

    def _publish(self, now_ns: int, seconds: float) -> None:
        memories = self._roster.memories
        views = (self._view(memories[key], *judged, now_ns) for key, judged in self._judgements.items())
        self.view = FleetView.of(now_ns, views)
        self.open_severities = self._tracker.open_severities()
        self.last_tick_ns = now_ns
        self.times.add(seconds)

    def _view(self, memory: WorkloadMemory, evidence: Evidence, judgement: Judgement, now_ns: int) -> WorkloadView:
        return WorkloadView(
            id=memory.id,
            workload=memory.workload,
            first_seen_ns=memory.first_seen_ns,
            last_seen_ns=memory.last_seen_ns,
            is_stale=now_ns - memory.last_seen_ns > self._settings.stale_ns,
            judgement=judgement,
            recent=evidence.recent,
            lifetime=evidence.lifetime,
            config=evidence.config,
            fingerprint=evidence.fingerprint,
            trail=memory.trail.points(),
        )
