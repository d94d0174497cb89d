"""What a window costs from the bytes of a request to its rows in the store, by stage, without judging.

    python tests/bench/bench_ingest.py

Processor time of the one thread that does it, in microseconds a window; batches of 100 windows, 16 in a transaction.
"""

from __future__ import annotations

import gzip
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "detectors"), str(ROOT / "collector"), str(ROOT / "tests")]

from collector.material import SECOND, batch, eager_window, healthy_window, workload  # noqa: E402
from collector.postgres import NoPostgres, Postgres  # noqa: E402
from replaywatch.collector.arrival import Limits, inflate, read_batch  # noqa: E402
from replaywatch.collector.ingest import BatchStorer, PreparedBatch, prepare  # noqa: E402
from replaywatch.collector.quick_decode import decode_quickly  # noqa: E402
from replaywatch.collector.store import Store  # noqa: E402
from replaywatch.contract.wire import encode  # noqa: E402

WINDOWS, GROUP, ROUNDS = 100, 16, 30
LIMITS = Limits(1 << 30, 1 << 30)


def material(now_ns: int) -> bytes:
    """A batch as an agent makes it, every fifth window of an eager service."""
    rng = random.Random(1)
    windows = [
        (eager_window if i % 5 == 0 else healthy_window)(now_ns - 10 * SECOND, rng, workload(f"pod-{i}"))
        for i in range(WINDOWS)
    ]
    return encode(batch(windows, "key", now_ns))


def cost_us(work: Callable[[], object], windows: int = WINDOWS, rounds: int = ROUNDS) -> float:
    """Median processor time of a window."""
    spent = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        spent.append(time.thread_time() - began)
    return median(spent) * 1e6 / windows


def storing_us(url: str, prepared: PreparedBatch) -> float:
    """What storing costs, a transaction for each group."""
    store, storer, count = Store.open(url), BatchStorer(), 0

    def group() -> None:
        nonlocal count
        some = [replace(prepared, key_digest=f"{count + i:064}") for i in range(GROUP)]
        count += GROUP
        with store.writing() as session, session.begin():
            accepted = storer.store(session, some)
        storer.committed(accepted)

    group()
    found = cost_us(group, WINDOWS * GROUP, 10)
    store.close()
    return found


def main() -> None:
    """Print a line for each stage."""
    now_ns = time.time_ns()
    content = material(now_ns)
    body = gzip.compress(content, 1)
    read = read_batch(body, is_gzip=True, limits=LIMITS, received_ns=now_ns)
    prepared = prepare(read.batch, now_ns, body=body, is_gzip=True)
    print(f"a window: {len(content) / WINDOWS:.0f} bytes, {len(body) / WINDOWS:.0f} compressed")
    print(f"inflate            {cost_us(lambda: inflate(body, 1 << 30)):6.1f} us")
    print(f"decode             {cost_us(lambda: decode_quickly(content)):6.1f} us")
    whole = cost_us(lambda: read_batch(body, is_gzip=True, limits=LIMITS, received_ns=now_ns))
    print(f"read, all of it    {whole:6.1f} us")
    print(f"make rows          {cost_us(lambda: prepare(read.batch, now_ns, body=body, is_gzip=True)):6.1f} us")
    with tempfile.TemporaryDirectory() as folder:
        print(f"store, SQLite      {storing_us(f'sqlite:///{folder}/x.db', prepared):6.1f} us")
    try:
        server = Postgres(durable=True)
        server.start()
    except NoPostgres as error:
        print(error)
        return
    try:
        print(f"store, PostgreSQL  {storing_us(server.database(), prepared):6.1f} us, and the server's own")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
