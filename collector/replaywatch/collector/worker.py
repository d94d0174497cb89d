"""A worker: takes its part of the partitions, hands some over when others come, takes over what the dead held."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from replaywatch.collector.fleet import FleetView, WorkloadView
from replaywatch.collector.health import detection_troubles
from replaywatch.collector.leases import Leases
from replaywatch.collector.share import Share
from replaywatch.contract.errors import StoreError

LOG = logging.getLogger("replaywatch.collector")
TTL_SECONDS: Final = 15.0
TURN_SECONDS: Final = 2.0
MakeShare = Callable[[int, int], Share]


@dataclass(slots=True)
class _Held:
    """A share, its epoch, and when it was taken (monotonic seconds)."""

    epoch: int
    since: float
    share: Share


class Worker:
    """Holds shares. One thread calls `renew`, another `turn`; `make_share` begins a share from partition and epoch.

    Beginning and ending a share may take minutes on a large fleet, so leases are renewed beside that.
    """

    def __init__(self, leases: Leases, make_share: MakeShare) -> None:
        self._leases = leases
        self._make_share = make_share
        self._shares: dict[int, _Held] = {}
        self._renewed: tuple[float, Mapping[int, int], int] | None = None

    @property
    def shares(self) -> list[Share]:
        """What this worker runs; for any thread."""
        return [held.share for held in list(self._shares.values())]

    def renew(self) -> None:
        """Hold on to the leases. Raises: StoreError."""
        asked = time.monotonic()
        epochs, fair = self._leases.renew()
        self._renewed = (asked, epochs, fair)

    def turn(self) -> None:
        """Drop what was lost or is too much, take what nobody has. Raises: StoreError."""
        if self._renewed is None:
            return
        asked, epochs, fair = self._renewed
        for partition, held in list(self._shares.items()):
            # What was taken after the question cannot be in the answer.
            if held.since < asked and epochs.get(partition) != held.epoch:
                LOG.warning("partition %d went to another worker", partition)
                self._drop(partition, is_lost=True)
            elif not held.share.is_alive:
                LOG.error("partition %d stopped by itself; it is given back", partition)
                self._drop(partition, is_lost=False)
        for partition in sorted(self._shares)[fair:]:
            self._drop(partition, is_lost=False)
        # A lease that is renewed but not worked for, as it could not be given back, would keep its partition from all.
        idle = {partition: epoch for partition, epoch in epochs.items() if partition not in self._shares}
        if idle:
            self._leases.give_back(idle)
        while len(self._shares) < self._renewed[2] and (taken := self._leases.take()) is not None:
            self._begin(*taken)

    def close(self) -> None:
        """Write down what is remembered and let others take over at once."""
        for share in self.shares:
            share.ask_to_stop()
        for partition in list(self._shares):
            self._drop(partition, is_lost=False)
        try:
            self._leases.leave()
        except StoreError as error:
            LOG.warning("the store does not know yet that this worker has left: %s", error)

    def has(self, partition: int) -> bool:
        """Whether a partition is this worker's."""
        return partition in self._shares

    @property
    def waiting(self) -> int:
        """Stored batches that detection has not taken in yet."""
        return sum(share.inbox.waiting for share in self.shares)

    def open_severities(self) -> Counter[str]:
        """Parts in open incidents, by severity."""
        return sum((Counter(share.detection.open_severities) for share in self.shares), Counter())

    def troubles(self, tick_ns: int, clock: Callable[[], int]) -> dict[str, str]:
        """What keeps its shares from judging."""
        found = {}
        for share in self.shares:
            for name, text in detection_troubles(share.detection, share.inbox, tick_ns, clock).items():
                found[f"partition {share.partition} {name}"] = text
        return found

    def view(self) -> FleetView:
        """What this worker judges, together."""
        views = [share.detection.view for share in self.shares]
        return FleetView.of(max((v.at_ns for v in views), default=0), _all(views))

    def _begin(self, partition: int, epoch: int) -> None:
        since = time.monotonic()
        try:
            self._shares[partition] = _Held(epoch, since, self._make_share(partition, epoch))
        except StoreError:
            self._leases.give_back({partition: epoch})
            raise
        LOG.info("partition %d is this worker's now", partition)

    def _drop(self, partition: int, *, is_lost: bool) -> None:
        held = self._shares.pop(partition)
        held.share.stop(is_lost=is_lost)
        if not is_lost:
            try:
                self._leases.give_back({partition: held.epoch})
            except StoreError as error:
                LOG.warning("partition %d is not given back yet: %s", partition, error)


def _all(views: list[FleetView]) -> Iterator[WorkloadView]:
    for view in views:
        yield from view.workloads
