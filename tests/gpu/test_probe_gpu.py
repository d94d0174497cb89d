"""The probe on a real device: exact counts, unchanged results, complete profiles. Their CPU twins are in tests/probe.

Run on a machine with torch and a GPU: `python -m pytest -m gpu tests/gpu/test_probe_gpu.py`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from probe.harness import ROOT, Listener, Pump, merged, run
from replaywatch.contract.window import Window
from replaywatch.contract.wire import decode
from replaywatch.probe import emission


def _has_gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed in this environment"),
    pytest.mark.skipif(not _has_gpu(), reason="this machine has no NVIDIA GPU"),
]
START = "import replaywatch.probe as probe; probe.start()\n"
HEAD = f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'gpu')!r})\nimport torch, time\n"
DENSE = {
    "REPLAYWATCH_PROBE_KERNELS": "1",
    "REPLAYWATCH_PROBE_TIME_ONE_IN": "4",
    "REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS": "0.5",
    "REPLAYWATCH_PROBE_TRACE_MS": "50",
}


def heard(code: str, folder: Path, **extra: str) -> tuple[Window, str]:
    """What the probe said of a program, and what the program printed."""
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        try:
            done = run(code, listener, torch=None, PYTHONWARNINGS="default", **extra)
        finally:
            frames = pump.stop()
    return merged([decode(frame) for frame in frames]), done.stdout


def test_counts_and_nodes_are_exact(tmp_path: Path) -> None:
    window, _ = heard(
        START
        + HEAD
        + """
x = torch.zeros(64, device="cuda")
def captured(kernels):
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(kernels):
            x.add_(1)
    return made
graphs = [captured(n) for n in (1, 5, 9)]
for at, made in enumerate(graphs):
    for _ in range(1000 + at):
        made.replay()
torch.cuda.synchronize()
assert x[0].item() == 1000 + 5 * 1001 + 9 * 1002
graphs[0].reset()
""",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="16",
    )
    dispatch = window.dispatch
    assert (dispatch.replays, dispatch.captures, dispatch.instantiations) == (3003, {"ok": 3}, 3)
    assert (dispatch.destroys, dispatch.live_graphs, dispatch.graph_nodes) == (1, 2, 14)
    assert window.memory.pool_bytes is not None
    assert "graph nodes" not in {b.signal for b in window.blind}


DECODE = """
import hashlib
from decoder import DecodeLoop
digest = hashlib.sha256()
for batch in (1, 8):
    for mode in ("eager", "graph"):
        loop = DecodeLoop(batch)
        step = loop.stepper(mode)
        for _ in range(200 if mode == "graph" else 60):
            step()
            digest.update(str(loop.tokens.tolist()).encode())
        digest.update(loop.keys.float().sum().item().hex().encode())
print(digest.hexdigest())
"""


def test_results_are_identical_bit_for_bit(tmp_path: Path) -> None:
    alone = run(HEAD + DECODE, tmp_path / "nobody.sock", torch=None, PYTHONWARNINGS="default").stdout
    window, watched = heard(START + HEAD + DECODE, tmp_path, **DENSE)
    assert watched == alone
    assert window.cost is not None
    assert window.cost.errors == 0
    assert window.timing.replay is not None


def test_the_profiler_loses_nothing_while_windows_run(tmp_path: Path) -> None:
    program = (
        HEAD
        + """
from decoder import DecodeLoop
from torch.profiler import profile, ProfilerActivity
loop = DecodeLoop(1)
eager, graph = loop.stepper("eager"), loop.stepper("graph")
end = time.time() + 6
counts = []
while len(counts) < 6:
    for _ in range(40):
        graph()
    time.sleep(0.3)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            eager(); graph()
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    counts.append(sum(e.device_type == device and "Memcpy" not in e.name for e in found.events()))
print(counts)
"""
    )
    alone = run(program, tmp_path / "nobody.sock", torch=None, PYTHONWARNINGS="default").stdout
    window, watched = heard(START + program, tmp_path, **DENSE)
    assert watched == alone
    assert len(set(eval(alone))) == 1, alone
    assert window.cost is not None


def test_timed_replays_agree_with_the_programs_own_events(tmp_path: Path) -> None:
    window, printed = heard(
        START
        + HEAD
        + """
from decoder import DecodeLoop
graph = DecodeLoop(8).capture()
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
times = []
for _ in range(450):
    begin.record(); graph.replay(); end.record()
    torch.cuda.synchronize()
    times.append(begin.elapsed_time(end))
print(sorted(times)[225])
time.sleep(0.6)
""",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="8",
        REPLAYWATCH_PROBE_BUDGET_RATIO="0.1",  # in windows this short the start alone takes the default one
        REPLAYWATCH_PROBE_KERNELS="0",
    )
    assert window.timing.replay is not None
    assert window.timing.replay.count >= 20
    assert window.timing.replay.quantile(0.5) == pytest.approx(float(printed) * 1e6, rel=0.1)


def test_captures_survive_a_helper_that_queries_events(tmp_path: Path) -> None:
    """Global capture mode fails when any thread makes an unsafe call; an event query from a second thread is one."""
    window, _ = heard(
        START
        + HEAD
        + """
x = torch.zeros(1 << 20, device="cuda")
def captured():
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(300):
            x.add_(1)
        time.sleep(0.02)
    return made
made = captured()
for _ in range(100):
    for _ in range(8):
        made.replay()
    made = captured()
torch.cuda.synchronize()
""",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="1",
    )
    assert window.dispatch.captures == {"ok": 101}
    assert window.dispatch.failed_calls is None


def test_a_capture_that_fails_is_counted_and_the_next_one_works(tmp_path: Path) -> None:
    window, _ = heard(
        START
        + HEAD
        + """
x = torch.zeros(64, device="cuda")
made = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(made):
        x.sum().item()
except RuntimeError:
    pass
else:
    raise AssertionError("the capture should have failed")
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    x.add_(1)
again.replay()
torch.cuda.synchronize()
""",
        tmp_path,
    )
    assert window.dispatch.captures == {"failed": 1, "ok": 1}
    assert sum((window.dispatch.failed_calls or {}).values()) == 1
    assert {o.kind for o in window.observations} == {"capture_failed"}


def test_compiled_calls_are_told_apart(tmp_path: Path) -> None:
    window, _ = heard(
        START
        + HEAD
        + """
@torch.compile(mode="reduce-overhead")
def f(x):
    return (x.sin() + 1).cos() * x
x = torch.randn(1024, device="cuda")
with torch.no_grad():
    for _ in range(20):
        f(x).clone()
torch.cuda.synchronize()
""",
        tmp_path,
    )
    assert window.dispatch.steps == {"eager": 2, "full": 18}
    assert window.dispatch.fallbacks == {"warm_up": 2}
    assert window.memory.by_owner is not None
    assert set(window.memory.by_owner) == {"inductor"}


def test_a_replay_that_does_not_end_in_time_is_reported(tmp_path: Path) -> None:
    window, _ = heard(
        START
        + HEAD
        + """
x = torch.zeros(64, device="cuda")
short, long = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(short):
    x.add_(1)
with torch.cuda.graph(long):
    torch.cuda._sleep(8_000_000_000)
for _ in range(20):
    short.replay()
torch.cuda.synchronize()
long.replay()
torch.cuda.synchronize()
""",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="4",
        REPLAYWATCH_PROBE_HANG_SECONDS="1",
    )
    stuck = [o for o in window.observations if o.kind == "replay_stuck"]
    assert stuck
    assert stuck[0].detail.startswith("graph 2 of user")


BUSY_LOOP = """
x = torch.zeros(64, device="cuda")
made = torch.cuda.CUDAGraph()
with torch.cuda.graph(made):
    for _ in range(200):
        x.add_(1)
torch.cuda.synchronize()
replays, end = 0, time.time() + {seconds}
while time.time() < end:
    made.replay()
    replays += 1
    if {wait}:
        torch.cuda.synchronize()
torch.cuda.synchronize()
assert x[0].item() == replays * 200, (x[0].item(), replays)
print(replays)
"""


def test_launch_costs_are_calibrated_beside_running_replays(tmp_path: Path) -> None:
    window, printed = heard(START + HEAD + BUSY_LOOP.format(seconds=6, wait=True), tmp_path, **DENSE)
    work = window.traced
    assert work is not None
    assert window.dispatch.replays == int(printed)
    assert work.calibrated_launch_ns is not None
    assert 300 < work.calibrated_launch_ns < 100_000
    assert work.calibrated_graph_launch_ns is not None
    assert 300 < work.calibrated_graph_launch_ns < 1_000_000
    assert work.calibrated_graph_gap_ns is not None
    assert 50 < work.calibrated_graph_gap_ns < 20_000


def test_graphs_traced_as_a_whole_are_seen_one_by_one(tmp_path: Path) -> None:
    window, printed = heard(
        START + HEAD + BUSY_LOOP.format(seconds=8, wait=True),
        tmp_path,
        REPLAYWATCH_PROBE_GRAPH_TRACE="1",
        REPLAYWATCH_PROBE_WINDOW_SECONDS="1",
        REPLAYWATCH_PROBE_TIME_ONE_IN="1000000",  # no events of the probe's own
        REPLAYWATCH_PROBE_BUDGET_RATIO="0.1",  # 4,500 replays a second and windows of 1 s take all of the default
    )
    replay = window.timing.replay
    assert "graph trace" not in {b.signal for b in window.blind}, window.blind
    assert window.cost is not None
    assert window.cost.traced_windows >= 3
    assert replay is not None
    assert window.dispatch.replays == int(printed)
    assert 0.1 * int(printed) < replay.count < int(printed)
    # Shorter than a step, and longer than 200 kernels of 0.5 us: on one H200 they took 0.89 us each.
    assert 100_000 < replay.quantile(0.5) < 8e9 / int(printed)


def test_replays_that_are_only_counted_are_counted_exactly(tmp_path: Path) -> None:
    window, printed = heard(
        START
        + HEAD
        + BUSY_LOOP.format(seconds=8, wait=False).replace("range(200)", "range(1)").replace("* 200", "* 1"),
        tmp_path,
        REPLAYWATCH_PROBE_BUDGET_RATIO="0.0001",
        REPLAYWATCH_PROBE_WINDOW_SECONDS="0.2",
    )
    assert emission.COUNTED_ONLY in {b.reason for b in window.blind}
    assert window.dispatch.replays == int(printed)
