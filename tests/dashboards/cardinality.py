"""How many series a fleet makes, counted in real expositions.

    python tests/dashboards/cardinality.py [--pods 1000]

Every pod is one process on one device with a decode and a prefill phase, and an agent of its own beside it. Typical is
what a serving engine sends; worst is every value of every closed set of labels.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "collector", "tests")]

from prometheus_client import CollectorRegistry, generate_latest  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from collector.material import GOOD, PRINT, workload  # noqa: E402
from replaywatch.agent.board import Board  # noqa: E402
from replaywatch.agent.exposition import Exposition  # noqa: E402
from replaywatch.agent.ledger import Ledger  # noqa: E402
from replaywatch.collector.fleet import WorkloadView  # noqa: E402
from replaywatch.collector.metrics import workload_families  # noqa: E402
from replaywatch.contract.histogram import Histogram  # noqa: E402
from replaywatch.contract.verdict import Estimate, Finding  # noqa: E402
from replaywatch.contract.window import (  # noqa: E402
    CAPTURE_OUTCOMES,
    FALLBACK_REASONS,
    Dispatch,
    GraphMemory,
    Phase,
    Timing,
    TracedWork,
    Window,
)
from replaywatch.detectors.catalogue import DETECTORS  # noqa: E402
from replaywatch.detectors.judge import Judgement  # noqa: E402

PHASES: tuple[Phase, ...] = ("decode", "prefill")
SOME = Histogram.of([2_000_000] * 8)
TIMING = Timing(replay=SOME, replay_gap=SOME, launch_gap=SOME, step_period=SOME, capture=SOME)
REST = {
    "replays": 90,
    "instantiations": 8,
    "real_tokens": 900,
    "padded_tokens": 1000,
    "live_graphs": 8,
    "batch_sizes": {4: 90, 48: 10},
    "eager_batch_sizes": {48: 10},
}
TYPICAL = Dispatch(
    steps={"full": 90, "eager": 10}, fallbacks={"above_ceiling": 8, "warm_up": 2}, captures={"ok": 8}, **REST
)
WORST = Dispatch(
    steps={"full": 1, "piecewise": 1, "eager": 1, "new": 1},
    fallbacks={**dict.fromkeys(FALLBACK_REASONS, 1), "new": 1},
    captures={**dict.fromkeys(CAPTURE_OUTCOMES, 1), "new": 1},
    failed_calls={f"cudaError{n}": 1 for n in range(500)},
    **REST,
)


@dataclass(frozen=True)
class Count:
    """Series by metric, size of the text, and seconds that one scrape took."""

    series: Counter[str]
    text_bytes: int
    seconds: float

    @property
    def total(self) -> int:
        """All series."""
        return self.series.total()


def agent_count(dispatch: Dispatch) -> Count:
    """What one pod's agent exposes."""
    ledger = Ledger()
    board = Board(256, 10**12, ledger)
    board.add([_window(0, phase, dispatch) for phase in PHASES], "p", 0)
    return _counted(Exposition(board, ledger, {}))


def collector_count(pods: int, findings: int) -> Count:
    """What a collector exposes of a fleet in which every workload has so many findings."""
    views = [_view(number, phase, findings) for number in range(pods) for phase in PHASES]

    class Fleet:
        def collect(self) -> object:
            return workload_families(views)

    return _counted(Fleet())


def _counted(exposed: object) -> Count:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exposed)  # type: ignore[arg-type]
    began = time.perf_counter()
    text = generate_latest(registry)
    seconds = time.perf_counter() - began
    series: Counter[str] = Counter()
    for family in text_string_to_metric_families(text.decode()):
        series[family.name] += len(family.samples)
    return Count(series, len(text), seconds)


def _window(number: int, phase: Phase, dispatch: Dispatch) -> Window:
    return Window(
        workload=replace(workload(f"chat-7d9f4b8c6d-{number:05d}", rank=0), phase=phase),
        start_ns=0,
        end_ns=5 * 10**9,
        origin="probe",
        dispatch=dispatch,
        timing=TIMING,
        traced=TracedWork(total_kernels=10, total_graph_kernels=9, total_span_ns=10, total_busy_ns=8),
        memory=GraphMemory(pool_bytes=1 << 28),
    )


def _view(number: int, phase: Phase, findings: int) -> WorkloadView:
    window = _window(number, phase, TYPICAL)
    estimate = Estimate(0.4, 0.3, 0.5)
    found = tuple(
        Finding(detector=d.name, subject="", severity="page", title="", evidence=(), estimate=estimate)
        for d in DETECTORS[:findings]
    )
    judgement = Judgement(window.workload, "finding", "page", found, (), (), (), estimate)
    return WorkloadView(
        id=str(number),
        workload=window.workload,
        first_seen_ns=0,
        last_seen_ns=0,
        is_stale=False,
        judgement=judgement,
        recent=window,
        lifetime=window,
        config=GOOD,
        fingerprint=PRINT,
        trail=(),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=1000)
    pods = parser.parse_args().pods
    typical, worst = agent_count(TYPICAL), agent_count(WORST)
    usual, full = collector_count(pods, 1), collector_count(pods, len(DETECTORS))
    print(f"{'':34}{'typical':>10}{'worst':>10}")
    print(f"{'series of one agent, one pod':34}{typical.total:>10}{worst.total:>10}")
    print(f"{f'series of {pods} such agents':34}{typical.total * pods:>10}{worst.total * pods:>10}")
    print(f"{'series of the collector':34}{usual.total:>10}{full.total:>10}")
    print(f"{'series in all':34}{typical.total * pods + usual.total:>10}{worst.total * pods + full.total:>10}")
    print(f"{'bytes of one agents answer':34}{typical.text_bytes:>10}{worst.text_bytes:>10}")
    print(f"{'bytes of the collectors answer':34}{usual.text_bytes:>10}{full.text_bytes:>10}")
    print(f"{'seconds of the collectors answer':34}{usual.seconds:>10.2f}{full.seconds:>10.2f}")
    print("\nlargest families of one agent, typical:")
    for name, count in typical.series.most_common(8):
        print(f"  {name:34}{count:>8}")


if __name__ == "__main__":
    main()
