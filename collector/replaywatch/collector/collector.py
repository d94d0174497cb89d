"""A collector's stages, started and stopped in order."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.applications import Starlette

from replaywatch.collector.detection import Detection
from replaywatch.collector.loop import Loop
from replaywatch.collector.notifier import Notifier
from replaywatch.collector.store import Store
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import StoreError

LOG = logging.getLogger("replaywatch.collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """The web application and the stages behind it."""

    web: Starlette
    store: Store
    writer: Writer
    detection: Detection
    notifier: Notifier | None
    loops: Mapping[str, Loop]

    def start(self) -> None:
        """Start the writing thread, then those that need it."""
        self.writer.start()
        for loop in self.loops.values():
            loop.start()

    def stop(self) -> None:
        """Stop judging and telling, write down what is remembered, write what waits, close the store."""
        if self.notifier is not None:
            self.notifier.close()
        for loop in self.loops.values():
            loop.stop(0.5)
        if not self.loops["detection"].is_alive:
            try:
                self.detection.close()
            except StoreError as error:
                LOG.warning("the last checkpoint was not written; it is made up for at the next start: %s", error)
        self.writer.close()
        self.store.close()
