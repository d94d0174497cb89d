"""`NodeCounter`: how many nodes a graph got, asked of the driver just before its capture ends."""

from __future__ import annotations

from replaywatch.probe.driver import nodes_being_captured
from replaywatch.probe.patching import loaded
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import GraphSlot


class NodeCounter:
    """Counts nodes where the driver tells; graphs stay without a count where it does not."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def count(self, slot: GraphSlot | None) -> None:
        """Note the number of nodes of a graph whose capture is about to end on this thread."""
        torch = loaded("torch")
        current = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if slot is None or current is None:
            return
        slot.nodes = nodes_being_captured(current(torch.cuda.current_device()))
        if slot.nodes is None:
            self._sight.blind("graph nodes", "the driver does not tell the nodes of a graph that is being captured")
