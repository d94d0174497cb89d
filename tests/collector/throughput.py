"""How many windows a second the collector takes, with detection running.

Run: `PYTHONPATH=tests python tests/collector/throughput.py`.
Sends batches from processes of their own to a real server with SQLite or PostgreSQL, and prints what was acknowledged.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import multiprocessing
import random
import statistics
import tempfile
import time
from dataclasses import replace
from typing import Any

import httpx

from collector.material import HEADERS, SECOND, batch, eager_window, healthy_window, workload
from collector.postgres import Postgres
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import GC_THRESHOLDS, start_in_thread
from replaywatch.contract.wire import encode


def send(url: str, lane: int, workloads: int, batch_windows: int, seconds: float, sent: Any) -> None:
    """Send batches as fast as they are acknowledged, each with a key of its own."""
    rng = random.Random(lane)
    since = time.time_ns() - 120 * SECOND
    names = [workload(f"pod-{lane}-{i}") for i in range(workloads)]
    pool = [(eager_window if i % 5 == 0 else healthy_window)(since, rng, name) for i, name in enumerate(names)]
    bodies = []
    for b in range(12):
        start = since + b * 5 * SECOND
        windows = [pool[(b * batch_windows + i) % workloads] for i in range(batch_windows)]
        moved = [replace(w, start_ns=start, end_ns=start + 5 * SECOND) for w in windows]
        bodies.append(encode(batch(moved, "the-key")))
    count, end = 0, time.monotonic() + seconds
    with httpx.Client(base_url=url, timeout=30) as client:
        while time.monotonic() < end:
            content = gzip.compress(bodies[count % 12].replace(b"the-key", b"%d-%d" % (lane, count)), 1)
            answer = client.post("/v1/batches", content=content, headers=dict(HEADERS))
            if answer.status_code == 200:
                count += 1
            else:
                time.sleep(0.05)
    sent.put(count * batch_windows)


def measure(store: str, given: argparse.Namespace) -> float:
    """One repetition; windows acknowledged a second."""
    handle = start_in_thread(CollectorOptions(port=0, store=store, tick_seconds=given.tick))
    each = given.workloads // given.lanes
    sent: multiprocessing.Queue[int] = multiprocessing.Queue()
    lanes = [
        multiprocessing.Process(target=send, args=(handle.url, n, each, given.batch, given.seconds, sent))
        for n in range(given.lanes)
    ]
    for lane in lanes:
        lane.start()
    used = time.process_time()
    total = sum(sent.get() for _ in lanes)
    used = time.process_time() - used
    for lane in lanes:
        lane.join()
    rows, seconds = handle.collector.detection.times.buckets()
    ticks = rows[-1][1]
    rate = total / given.seconds
    print(
        f"{rate:7.0f} windows acknowledged per second, {used / max(1, total) * 1e6:5.0f} us of its own time "
        f"each, {ticks:.0f} ticks of {seconds / max(1, ticks):.2f} s over {given.workloads} workloads"
    )
    handle.stop()
    return rate


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--tick", type=float, default=5.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--postgresql", action="store_true", help="a real PostgreSQL of its own instead of SQLite")
    given = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)  # as the program does
    rates = []
    for _ in range(given.repeat):
        if given.postgresql:
            server = Postgres(durable=True)
            server.start()
            try:
                rates.append(measure(server.database(), given))
            finally:
                server.stop()
        else:
            with tempfile.TemporaryDirectory() as folder:
                rates.append(measure(f"sqlite:///{folder}/x.db", given))
    print(f"median of {len(rates)}: {statistics.median(rates):.0f}, from {min(rates):.0f} to {max(rates):.0f}")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
