"""How far the clocks of senders are off, by node, as their last batches showed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from replaywatch.contract.wire import Batch

SENDERS_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class Sender:
    """A node that batches came from. `skew_ns`: what its clock lacks; beyond the way of a batch it is taken out."""

    node: str
    last_received_ns: int
    skew_ns: int


class Clocks:
    """The last batch of each node; used by the web thread only."""

    def __init__(self) -> None:
        self._senders: OrderedDict[str, Sender] = OrderedDict()

    def note(self, batch: Batch, received_ns: int) -> None:
        """Note the nodes of a batch that says when it was sent."""
        if batch.sent_ns <= 0:
            return
        for node in {w.workload.node for w in batch.windows if w.workload.node is not None}:
            self._senders[node] = Sender(node, received_ns, received_ns - batch.sent_ns)
            self._senders.move_to_end(node)
        while len(self._senders) > SENDERS_MAX:
            self._senders.popitem(last=False)

    def senders(self) -> list[Sender]:
        """All nodes, by name."""
        return sorted(self._senders.values(), key=lambda s: s.node)

    @property
    def worst_skew_seconds(self) -> float:
        """The largest deviation, either way."""
        return max((abs(s.skew_ns) for s in self._senders.values()), default=0) / 1e9
