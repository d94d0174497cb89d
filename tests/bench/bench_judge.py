"""How many windows a second are followed, added up and judged, and where the time goes.

One process a core, each with its own share of a fleet, as detector workers have it; a window of every workload comes
each turn, and every workload is judged each turn, with peers. Ratios of one run compare; absolute figures depend on the
machine and on what else runs there.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT / part) for part in ("agent", "detectors", "collector", "tests")]

from detectors.live import stream  # noqa: E402
from replaywatch.collector.memory import WorkloadMemory  # noqa: E402
from replaywatch.collector.peer_book import PeerBook  # noqa: E402
from replaywatch.contract.snapshot import EngineConfig, Fingerprint  # noqa: E402
from replaywatch.contract.window import Window, merge_windows  # noqa: E402
from replaywatch.detectors.evidence import Evidence  # noqa: E402
from replaywatch.detectors.figures import figures_of  # noqa: E402
from replaywatch.detectors.judge import judge  # noqa: E402
from replaywatch.detectors.sudden_state import SuddenState, advance  # noqa: E402

HORIZON_NS = 120 * 10**9
WORKLOADS, TURNS, WARM_TURNS = 60, 30, 30
AIM = 20_000
PRINT = Fingerprint(gpu_model="NVIDIA H200", engine="vllm", model_name="llama-1b")
CONFIG = EngineConfig(engine="vllm", graphs_enabled=True, requested_mode="FULL", resolved_mode="FULL",
                      capture_sizes=(1, 2, 4, 8, 16, 32, 64), capture_unit="sequences", max_batch_size=64)  # fmt: skip


def fleet(seed: int) -> list[list[Window]]:
    """Windows of a share of a fleet, workload by workload."""
    return [list(stream(5.0 * (TURNS + WARM_TURNS), 1000 * seed + i)) for i in range(WORKLOADS)]


def judged_a_second(seed: int) -> tuple[float, float]:
    """Windows a second of one process, and a second of its processor time: follow, add up, compare, judge."""
    windows = fleet(seed)
    memories = [WorkloadMemory(f"{seed}-{i}", w[0].workload, 0, 0) for i, w in enumerate(windows)]
    book = PeerBook()
    began = began_cpu = 0.0
    for turn in range(TURNS + WARM_TURNS):
        if turn == WARM_TURNS:
            began, began_cpu = time.perf_counter(), time.process_time()
        _turn(turn, memories, windows, book)
    done = WORKLOADS * TURNS
    return done / (time.perf_counter() - began), done / (time.process_time() - began_cpu)


def _turn(turn: int, memories: list[WorkloadMemory], windows: list[list[Window]], book: PeerBook) -> None:
    gathered = []
    for memory, own in zip(memories, windows, strict=True):
        memory.absorb(own[turn], own[turn].end_ns, turn)
        memory.settle(HORIZON_NS)
        recent, lifetime = memory.recent, memory.lifetime
        assert recent is not None
        assert lifetime is not None
        evidence = Evidence(
            workload=memory.workload, recent=recent, lifetime=lifetime, config=CONFIG, fingerprint=PRINT,
            sudden=memory.sudden, peers=book.peers_of(memory.id), read=(recent, figures_of(recent)),
        )  # fmt: skip
        book.note(memory.id, evidence, turn)
        gathered.append(evidence)
    book.make_cohorts(0)
    for evidence in gathered:
        judge(evidence)


def parts() -> dict[str, float]:
    """Microseconds of each part for one window."""
    own = fleet(0)[0]
    state = SuddenState()
    for window in own:
        state = advance(state, window)
    last, before = own[-1], own[-2]
    merged = merge_windows(before, last)
    evidence = Evidence(
        workload=last.workload, recent=merged, lifetime=merged, config=CONFIG, fingerprint=PRINT, sudden=state
    )
    earlier = SuddenState()
    for window in own[:-1]:
        earlier = advance(earlier, window)
    return {
        "merge of two windows": _us(lambda: merge_windows(before, last)),
        "follow (sudden)": _us(lambda: advance(earlier, last)),
        "judge, all detectors": _us(lambda: judge(evidence)),
    }


def _us(action: Callable[[], object], times: int = 300) -> float:
    action()
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(times):
            action()
        best = min(best, (time.process_time() - began) / times)
    return best * 1e6


def main() -> int:
    """Print the parts and the rate of one and of two processes."""
    random.seed(0)
    for name, us in parts().items():
        print(f"{name:<28} {us:8.1f} us")
    one, one_cpu = judged_a_second(1)
    print(f"{'one process':<28} {one:8.0f} windows/s, {one_cpu:8.0f} a second of processor time")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        both = list(pool.map(judged_a_second, (1, 2)))
    wall, cpu = sum(w for w, _ in both), sum(c for _, c in both)
    print(f"{'two processes':<28} {wall:8.0f} windows/s, {cpu:8.0f} with two free cores (aim {AIM})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
