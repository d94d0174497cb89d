"""Agents as far as a collector can tell: each sends its windows until they are acknowledged, and counts them."""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from collector.material import HEADERS, SECOND, eager_window, healthy_window, workload
from collector.material import batch as batch_of
from replaywatch.contract.window import Window, Workload
from replaywatch.contract.wire import encode


def fleet_workload(node: int, gpu: int, models: int, prefix: str = "pod") -> Workload:
    """One GPU's workload of a fleet in which a node serves one model."""
    model = node % models
    return workload(
        f"{prefix}-{node}-{gpu}",
        node=f"node-{node:05d}",
        gpu_index=gpu,
        model_name=f"model-{model}",
        gpu_uuid=f"GPU-{node}-{gpu}",
    )


@dataclass
class Sender:
    """One node's agent. `acknowledged` are the windows that a collector said it has, by batch key."""

    node: int
    urls: Sequence[str]
    workloads: Sequence[Workload]
    is_eager: bool = False
    acknowledged: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    seed: int = 1

    def windows(self, end_ns: int) -> list[Window]:
        """A window of each of its workloads that ends at a time."""
        rng = random.Random(self.seed)
        make = eager_window if self.is_eager else healthy_window
        return [make(end_ns - 5 * SECOND, rng, who) for who in self.workloads]

    def send(self, client: httpx.Client, key: str, until: Callable[[], bool]) -> bool:
        """Send one batch until it is acknowledged, as the agent does; False when there is no more time."""
        windows = self.windows(time.time_ns())
        rng = random.Random(key)
        while not until():
            self.attempts += 1
            body = gzip.compress(encode(batch_of(windows, key, time.time_ns())), 1)
            url = self.urls[self.attempts % len(self.urls)]
            try:
                answer = client.post(f"{url}/v1/batches", content=body, headers=dict(HEADERS))
            except httpx.HTTPError:
                time.sleep(0.1 + rng.random() * 0.2)
                continue
            if answer.status_code == 200:
                self.acknowledged[key] = len(windows)
                # Some batches come again although they were acknowledged, as after an answer that was lost.
                if rng.random() < 0.05:
                    with suppress(httpx.HTTPError):
                        client.post(f"{url}/v1/batches", content=body, headers=dict(HEADERS))
                return True
            time.sleep(0.1 + rng.random() * 0.2)
        return False


class Senders:
    """Threads that send round after round until told to stop."""

    def __init__(
        self, senders: Sequence[Sender], threads: int, pause_seconds: float, timeout_seconds: float = 15
    ) -> None:
        self.senders = senders
        self._timeout = timeout_seconds
        self._pause = pause_seconds
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(senders[n::threads],), daemon=True) for n in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more rounds, and wait until what is under way is acknowledged."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a batch was not acknowledged within two minutes"

    @property
    def acknowledged(self) -> dict[str, int]:
        """Windows by key of all batches that were acknowledged."""
        return {key: n for sender in self.senders for key, n in list(sender.acknowledged.items())}

    def _run(self, mine: Sequence[Sender]) -> None:
        turn = 0
        with httpx.Client(timeout=self._timeout, trust_env=False) as client:
            while not self._stopping.is_set():
                for sender in mine:
                    sender.send(client, f"n{sender.node}-r{turn}", lambda: False)
                turn += 1
                self._stopping.wait(self._pause)
