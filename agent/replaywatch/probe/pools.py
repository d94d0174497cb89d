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


class GraphBytes:
    """Bytes per pool of the graphs alive. Missing readings make missing results, never zeros."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[object, dict[int, GraphSlot]] = {}
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
            self._pools.setdefault(slot.pool, {})[slot.number] = slot

    def destroyed(self, slot: GraphSlot) -> None:
        """A graph went; its growth stays counted while another graph of the pool lives."""
        with self._lock:
            pool = self._pools.get(slot.pool)
            if pool and all(s.state == "gone" for s in pool.values()):
                del self._pools[slot.pool]

    def take(self, ready: Iterable[GraphSlot]) -> dict[str, Any]:
        """The gauges in the wire form; empty where nothing was read."""
        alive = {s.number for s in ready}
        with self._lock:
            if not self._known:
                return {}
            pools = [list(pool.values()) for pool in self._pools.values()]
        by_owner: dict[str, int] = {}
        unused = 0
        for pool in pools:
            size = sum(s.bytes or 0 for s in pool)
            for slot in pool:
                by_owner[slot.owner] = by_owner.get(slot.owner, 0) + (slot.bytes or 0)
            if not any(s.replays for s in pool) and any(s.number in alive for s in pool):
                unused += size
        return {"pool_bytes": sum(by_owner.values()), "unused_bytes": unused, "by_owner": by_owner}
