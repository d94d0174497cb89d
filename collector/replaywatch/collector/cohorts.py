"""Which share of the fleet a workload belongs to: peers together, so that one worker sees them side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from replaywatch.contract.window import Window, Workload


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a fleet is divided. `spread`: over how many partitions one model's nodes go where one would be too many."""

    partitions: int
    spread: int = 1

    def partition_of(self, workload: Workload) -> int:
        """The partition of a workload, the same for as long as its identity is."""
        cohort = _number(f"{workload.engine}/{workload.model_name or ''}")
        place = _number(workload.node or workload.pod or "") % self.spread
        return (cohort + place) % self.partitions

    def partitions_of(self, windows: Iterable[Window]) -> list[int]:
        """The partitions that some windows belong to; the first one for none at all."""
        return sorted({self.partition_of(w) for w in {w.workload for w in windows}}) or [0]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
