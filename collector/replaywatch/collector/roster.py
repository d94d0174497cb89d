"""All workloads in memory, and the snapshots that they point to; used by the detection thread only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replaywatch.collector.checkpoint import load, load_snapshots, load_some, save
from replaywatch.collector.ingest import StoredBatch
from replaywatch.collector.memory import WorkloadMemory
from replaywatch.collector.store import Store
from replaywatch.collector.writer import Writer
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window, Workload
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import Figures, figures_of


class Roster:
    """Workloads of one partition by id. `horizon_ns` is how far back their recent evidence reaches."""

    def __init__(self, store: Store, horizon_ns: int, partition: int = 0) -> None:
        self._store = store
        self._horizon_ns = horizon_ns
        self._partition = partition
        self._ids: dict[Workload, str] = {}
        self._last_serial = 0
        self.memories: dict[str, WorkloadMemory] = {}
        self._configs: dict[str, EngineConfig] = {}
        self._fingerprints: dict[str, Fingerprint] = {}

    def restore(self, since_ns: int, also: Iterable[str]) -> None:
        """Read back what was known before a restart."""
        with self._store.reading() as session:
            self.memories, self._last_serial = load(
                session,
                partition=self._partition,
                since_ns=since_ns,
                horizon_ns=self._horizon_ns,
                also=tuple(also),
            )
        self._ids = {m.workload: m.id for m in self.memories.values()}
        self.find_snapshots()

    def knows(self, key: str) -> bool:
        """Whether a workload is in memory; may be asked from any thread."""
        return key in self.memories

    def absorb(self, stored: StoredBatch) -> None:
        """Take in a stored batch, wholly or, when the store fails, not at all. Raises: StoreError."""
        serial = stored.serial
        assert serial is not None
        new = stored.ids.keys() - self._ids.keys()
        if new:
            self._welcome({stored.ids[w]: w for w in new}, stored.received_ns)
        self._configs.update(stored.batch.configs)
        self._fingerprints.update(stored.batch.fingerprints)
        for window in stored.batch.windows:
            self.memories[self._ids[window.workload]].absorb(window, stored.received_ns, serial)
        self._last_serial = max(self._last_serial, serial)

    def settle(self) -> None:
        """Add up what was absorbed."""
        for memory in self.memories.values():
            memory.settle(self._horizon_ns)

    def _welcome(self, new: Mapping[str, Workload], received_ns: int) -> None:
        with self._store.reading() as session:
            known = load_some(session, new.keys())
        for key, workload in new.items():
            self.memories[key] = known.get(key) or WorkloadMemory(key, workload, received_ns, received_ns)
            self._ids[workload] = key

    def find_snapshots(self) -> None:
        """Fetch snapshots that windows point to and that no batch brought since the start."""
        lifetimes = [m.lifetime for m in self.memories.values() if m.lifetime is not None]
        configs = {w.config_id for w in lifetimes if w.config_id is not None} - self._configs.keys()
        used = {w.fingerprint_id for w in lifetimes}
        used |= {m.sudden.previous_fingerprint_id for m in self.memories.values()}
        fingerprints = {i for i in used if i is not None} - self._fingerprints.keys()
        if configs or fingerprints:
            with self._store.reading() as session:
                found_configs, found_fingerprints = load_snapshots(session, configs, fingerprints)
            self._configs.update(found_configs)
            self._fingerprints.update(found_fingerprints)

    def evidence(self, memory: WorkloadMemory) -> Evidence | None:
        """What the detectors may look at; None when no window is in memory."""
        recent, lifetime = memory.recent, memory.lifetime
        if recent is None or lifetime is None:
            return None
        return Evidence(
            workload=memory.workload,
            recent=recent,
            lifetime=lifetime,
            config=self._configs.get(lifetime.config_id or ""),
            fingerprint=self._fingerprints.get(lifetime.fingerprint_id or ""),
            sudden=memory.sudden,
            previous_fingerprint=self._fingerprints.get(memory.sudden.previous_fingerprint_id or ""),
            read=_read(recent),
        )

    def checkpoint(self, writer: Writer) -> None:
        """Write down the lifetimes that changed, and what came to their hours. Raises: StoreError."""
        self.settle()
        dirty = [m for m in self.memories.values() if m.is_dirty]
        if dirty:
            writer.do(lambda session: save(session, dirty, self._partition, self._last_serial))
        for memory in dirty:
            memory.is_dirty = False
            memory.saved_serial = memory.through_serial
            memory.forget_hours()

    def forget(self, key: str) -> None:
        """Drop a workload that is gone."""
        memory = self.memories.pop(key)
        self._ids.pop(memory.workload, None)


def _read(recent: Window) -> tuple[Window, Figures] | None:
    """The figures of a window, read once for peers and detectors; None for ones beyond all bounds."""
    try:
        return recent, figures_of(recent)
    except (ArithmeticError, ValueError):
        return None
