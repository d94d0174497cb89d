"""`GraphBytes`: memory that captures took, by pool and owner, from the allocator's own counter of reserved bytes.

Walking `memory_snapshot` would hold the allocator's lock and the interpreter for milliseconds; the growth of reserved
bytes over a capture is read in about 0.1 ms, off the hot path. A pool's bytes go when its last graph goes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from replaywatch.probe.patching import loaded
from replaywatch.probe.slots import GraphSlot


class Pool:
    """One pool: its graphs alive by number, and what those that went left behind in it. Shape: bytes by owner."""

    __slots__ = ("alive", "gone", "replayed")

    def __init__(self) -> None:
        self.alive: dict[int, GraphSlot] = {}
        self.gone: dict[str, int] = {}
        self.replayed = False

    def drop(self, slot: GraphSlot) -> None:
        """A graph of the pool went."""
        if self.alive.pop(slot.number, None) is not None:
            self.gone[slot.owner] = self.gone.get(slot.owner, 0) + (slot.bytes or 0)
            self.replayed = self.replayed or slot.replays > 0

    def by_owner(self) -> dict[str, int]:
        """Bytes by the owner of the graph that took them."""
        found = dict(self.gone)
        for slot in list(self.alive.values()):
            found[slot.owner] = found.get(slot.owner, 0) + (slot.bytes or 0)
        return found


class GraphBytes:
    """Bytes per pool of the graphs alive. Missing readings make missing results, never zeros."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer that the collector runs under it may reset a graph
        self._pools: dict[object, Pool] = {}
        self._known = False

    def reserved(self) -> int | None:
        """Bytes that the caching allocator holds on the current device; None where torch does not tell."""
        torch = loaded("torch")
        try:
            if torch is None or not torch.cuda.is_initialized():
                return None
            return int(torch.cuda.memory_reserved())
        except Exception:  # the probe's border: another allocator may refuse
            return None

    def current_device(self) -> int | None:
        """Index of the calling thread's device; None where CUDA is not up."""
        torch = loaded("torch")
        try:
            return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else None
        except Exception:  # the probe's border
            return None

    def captured(self, slot: GraphSlot, graph: Any) -> None:
        """A capture ended, well or badly: what the pool grew by belongs to it."""
        after = self.reserved()
        if after is None or slot.before_bytes is None:
            return
        slot.bytes = max(0, after - slot.before_bytes)
        try:
            slot.pool = tuple(graph.pool())
        except Exception:  # the probe's border: a failed capture may have no pool
            slot.pool = ("graph", slot.number)
        with self._lock:
            self._known = True
            self._pools.setdefault(slot.pool, Pool()).alive[slot.number] = slot

    def destroyed(self, slot: GraphSlot) -> None:
        """A graph went; its growth stays counted while another graph of the pool lives."""
        with self._lock:
            pool = self._pools.get(slot.pool)
            if pool is not None:
                pool.drop(slot)
                if not pool.alive:
                    self._pools.pop(slot.pool, None)

    def take(self, graphs: Iterable[GraphSlot]) -> dict[str, Any]:
        """The gauges in the wire form; empty where nothing was read. Shape: `graphs` those ready or failed."""
        ready = {s.number for s in graphs}
        by_owner: dict[str, int] = {}
        unused = 0
        with self._lock:
            if not self._known:
                return {}
            for pool in list(self._pools.values()):
                found = pool.by_owner()
                for owner, size in found.items():
                    by_owner[owner] = by_owner.get(owner, 0) + size
                used = pool.replayed or any(slot.replays for slot in list(pool.alive.values()))
                if not used and not ready.isdisjoint(pool.alive):
                    unused += sum(found.values())
        return {"pool_bytes": sum(by_owner.values()), "unused_bytes": unused, "by_owner": by_owner}
