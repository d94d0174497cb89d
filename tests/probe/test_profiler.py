"""torch.profiler has way: the kernel tracer is paused before Kineto begins, and leaves CUPTI to it from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe.harness import seen
from replaywatch.probe import graph_trace, tracing

START = "import replaywatch.probe as probe; probe.start()\n"
# A tracer that notes what is asked of it, in the place of the native one.
TRACER = """
import sys, types, time
log = []
class Tracer:
    def calibrate(self):
        log.append("calibrate")
        return {"launch_host_ns": 2100, "graph_launch_host_ns": 5200, "in_graph_gap_ns": 420, "launch_device_ns": 1900}
    def run_window(self, duration_ms):
        log.append("window")
        work = {"method": "cupti", "steps": 2, "span_ns": 10, "total_kernels": 30, "total_graph_kernels": 30}
        return {"traced": work,
                "timing": {"launch_gap": {"n": 1, "s": 8, "b": {"24": 1}}}}
    def enable_graph_level(self):
        if torch.cuda.is_initialized():
            raise RuntimeError("CUDA is initialised")
        log.append("graph level")
    def pause(self):
        log.append("pause")
        return True
    def resume(self):
        log.append("resume")
module = types.ModuleType("replaywatch.probe.tracer")
module.open_tracer = Tracer
sys.modules["replaywatch.probe.tracer"] = module
from replaywatch.probe import session, tracing
tracing.BURST_S = (0.05, 0.1, 0.15)
import torch, torch.autograd.profiler as profiler
"""


def test_windows_run_in_a_burst_and_step_aside_for_a_profiler(tmp_path: Path) -> None:
    window = seen(
        START
        + TRACER
        + """
torch.cuda.init()
end = time.time() + 20
while log.count("window") < 3 and time.time() < end:
    time.sleep(0.02)
time.sleep(0.3)
assert log == ["calibrate"] + ["window"] * 3, log
profile = profiler.profile()
with profile:
    log.append("profiling")
    session.current().tracing._next_ns = 1
    time.sleep(0.4)
log.append("over")
assert profile.results == "results" and profiler.calls == ["prepare", "enable", "disable"]
assert log[4:] == ["pause", "profiling", "over"], log
session.current().tracing._next_ns = 1
time.sleep(0.6)
with profile:
    log.append("profiling again")
session.current().tracing._next_ns = 1
time.sleep(0.6)
assert log[7:] == ["profiling again"], log
""",
        tmp_path,
        REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS="3600",
    )
    assert window.traced is not None
    assert window.traced.steps == 6
    assert window.traced.coverage == 1.0
    assert window.timing.launch_gap is not None
    assert window.timing.launch_gap.count == 3
    assert window.cost is not None
    assert window.cost.traced_windows == 4
    assert window.traced.calibrated_launch_ns == 2100
    assert window.traced.calibrated_graph_launch_ns == 5200
    assert window.traced.calibrated_graph_gap_ns == 420
    reasons = " ".join(b.reason for b in window.blind)
    assert "torch.profiler runs" in reasons
    assert "torch.profiler was used in this process" in reasons


@pytest.mark.parametrize("how", ["raise RuntimeError('no context')", "return {}"])
def test_a_calibration_that_fails_costs_no_stretch(how: str, tmp_path: Path) -> None:
    window = seen(
        START
        + TRACER
        + f"""
def calibrate(self):
    {how}
Tracer.calibrate = calibrate
torch.cuda.init()
end = time.time() + 20
while log.count("window") < 3 and time.time() < end:
    time.sleep(0.02)
""",
        tmp_path,
        REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS="3600",
    )
    assert window.traced is not None
    assert window.traced.calibrated_launch_ns is None
    reasons = [spot.reason for spot in window.blind if spot.signal == "launch costs"]
    assert bool(reasons) == how.startswith("raise")
    assert all("no context" in reason for reason in reasons)


def test_launches_are_not_calibrated_while_something_is_captured(tmp_path: Path) -> None:
    seen(
        START
        + TRACER
        + """
torch.cuda.init()
tracing = session.current().tracing
tracing._tracer = Tracer()
capturing = True
tracing._capturing = lambda: capturing
tracing._calibrate(tracing._tracer)
assert log == []
capturing = False
for _ in range(2):
    tracing._calibrate(tracing._tracer)
assert log == ["calibrate"], log
""",
        tmp_path,
        REPLAYWATCH_PROBE_KERNELS="",
    )


def test_a_profiler_that_fails_to_start_is_over_all_the_same(tmp_path: Path) -> None:
    window = seen(
        START
        + TRACER
        + """
torch.cuda.init()
session.current().tracing._tracer = Tracer()
profiler._enable_profiler.__wrapped__
profiler._prepare_profiler("config", set())
assert log == ["pause"]
profiler._disable_profiler()
profiler._disable_profiler()
assert session.current().tracing._profilers == 0
profiler._prepare_profiler("config", set())
profiler._disable_profiler()
assert log == ["pause"]
""",
        tmp_path,
    )
    assert "kernels" in {b.signal for b in window.blind}


def test_nothing_is_traced_while_something_is_captured(tmp_path: Path) -> None:
    seen(
        START
        + TRACER
        + """
torch.cuda.init()
graph = torch.cuda.CUDAGraph()
graph.capture_begin()
time.sleep(0.7)
assert log == []
graph.capture_end()
""",
        tmp_path,
        REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS="0.1",
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("KINETO_USE_DAEMON", "1", "a daemon may start Kineto"),
        ("KINETO_USE_DAEMON", "0", "a daemon may start Kineto"),
        ("REPLAYWATCH_PROBE_KERNELS", "0", "start one replica with REPLAYWATCH_PROBE_KERNELS=1"),
        ("X", "", "this installation has no native tracer"),
    ],
)
def test_no_tracing_is_said_with_its_reason(name: str, value: str, words: str, tmp_path: Path) -> None:
    block = "import sys; sys.modules['replaywatch.probe.tracer'] = None\n" if name == "X" else ""
    window = seen(
        START + block + "from replaywatch.probe import tracing; tracing.BURST_S = (0.01, 0.1, 0.2)\n"
        "import torch, time; torch.cuda.init(); time.sleep(0.5)\n",
        tmp_path,
        **{name: value},
    )
    assert [b for b in window.blind if b.signal == "kernels" and words in b.reason], window.blind


def test_a_torch_whose_profiler_cannot_be_seen_is_never_traced(tmp_path: Path) -> None:
    window = seen(
        "import torch.autograd.profiler as profiler; del profiler._enable_profiler\n"
        + START
        + TRACER
        + "torch.cuda.init(); time.sleep(0.6); assert log == []\n",
        tmp_path,
    )
    assert "kernels" in {b.signal for b in window.blind}


# The functions of torch._C through which torch initialises CUDA.
NATIVE = """
torch._C._cuda_init = lambda: None
torch._C._cuda_getDeviceCount = lambda: 4
"""


@pytest.mark.parametrize("first", ["_cuda_init", "_cuda_getDeviceCount"])
def test_graphs_are_traced_as_a_whole_from_before_cuda_is_initialised(first: str, tmp_path: Path) -> None:
    window = seen(
        "import torch\n"
        + NATIVE
        + START
        + TRACER
        + f"""
assert log == []
assert torch._C.{first}() == {{"_cuda_init": None, "_cuda_getDeviceCount": 4}}["{first}"]
assert log == ["graph level"], log
torch._C._cuda_init(); torch.cuda.init(); torch._C._cuda_getDeviceCount()
end = time.time() + 20
while log.count("window") < 3 and time.time() < end:
    time.sleep(0.02)
assert log[:4] == ["graph level"] + ["window"] * 3, log  # no calibration: its kernels would not be seen
tracing = session.current().tracing
with profiler.profile():
    assert log[-1] == "pause"
before = len(log)
tracing._next_ns = 1
time.sleep(0.4)
assert len(log) == before, log
""",
        tmp_path,
        REPLAYWATCH_PROBE_KERNELS="",
        REPLAYWATCH_PROBE_GRAPH_TRACE="1",
    )
    assert window.cost is not None
    assert window.cost.traced_windows >= 3
    spots = {(spot.signal, spot.reason) for spot in window.blind}
    assert ("kernels", tracing.INSTEAD_OF_KERNELS) in spots
    assert ("graph trace", tracing.AFTER_PROFILER) in spots


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("torch.cuda.init(); torch._C._cuda_init()", "not traced as a whole: CUDA is initialised"),
        ("torch.cuda.init()", "torch has not initialised CUDA yet"),
        ("profiler.profile().__enter__(); torch._C._cuda_init()", "torch.profiler came first"),
    ],
)
def test_graphs_that_cannot_be_traced_as_a_whole_are_a_blind_spot(program: str, words: str, tmp_path: Path) -> None:
    window = seen(
        "import torch\n"
        + NATIVE
        + START
        + TRACER
        + program
        + "; torch.cuda.init(); time.sleep(0.4); assert log == []\n",
        tmp_path,
        REPLAYWATCH_PROBE_KERNELS="",
        REPLAYWATCH_PROBE_GRAPH_TRACE="1",
    )
    assert [spot for spot in window.blind if spot.signal == "graph trace" and words in spot.reason], window.blind
    assert [spot for spot in window.blind if spot.reason == tracing.OFF]


def test_a_probe_that_begins_after_cuda_says_that_it_is_too_late(tmp_path: Path) -> None:
    window = seen(
        "import torch\n" + NATIVE + "torch.cuda.init()\n" + START + TRACER + "time.sleep(0.4); assert log == []\n",
        tmp_path,
        REPLAYWATCH_PROBE_KERNELS="",
        REPLAYWATCH_PROBE_GRAPH_TRACE="1",
    )
    assert {spot.reason for spot in window.blind if spot.signal == "graph trace"} == {graph_trace.TOO_LATE}


def test_what_asks_for_devices_does_not_wait_for_a_stretch(tmp_path: Path) -> None:
    seen(
        "import torch\n"
        + NATIVE
        + START
        + TRACER
        + """
import threading
def enable_graph_level(self):
    raise RuntimeError("this CUPTI is too old")
Tracer.enable_graph_level = enable_graph_level
began, asked = threading.Event(), threading.Event()
def run_window(self, duration_ms):
    began.set()
    log.append(asked.wait(20))
Tracer.run_window = run_window
torch._C._cuda_init()
tracing = session.current().tracing
stretch = threading.Thread(target=tracing.run, args=(1, 1))
stretch.start()
assert began.wait(20)
assert torch._C._cuda_getDeviceCount() == 4
asked.set()
stretch.join()
assert log == ["calibrate", True], log
torch.cuda.init()
""",
        tmp_path,
        REPLAYWATCH_PROBE_GRAPH_TRACE="1",
        REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS="3600",
    )


def test_a_forked_child_traces_its_graphs_as_a_whole_on_its_own(tmp_path: Path) -> None:
    seen(
        "import torch\n"
        + NATIVE
        + START
        + TRACER
        + """
import os
child = os.fork()
if child == 0:
    torch._C._cuda_init()
    os._exit(0 if log == ["graph level"] and session.current().tracing._traces_graphs else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert log == [] and not session.current().tracing._traces_graphs
torch.cuda.init(); time.sleep(0.3)
""",
        tmp_path,
        REPLAYWATCH_PROBE_KERNELS="",
        REPLAYWATCH_PROBE_GRAPH_TRACE="1",
    )


def test_torchs_native_start_is_left_alone_unless_asked(tmp_path: Path) -> None:
    seen(
        "import torch\n" + NATIVE + "bare = torch._C._cuda_init\n" + START + TRACER
        + "assert torch._C._cuda_init is bare; torch.cuda.init(); time.sleep(0.3)\n",
        tmp_path,
    )  # fmt: skip


def test_nothing_touches_cupti_unless_it_was_asked_to(tmp_path: Path) -> None:
    window = seen(
        START
        + TRACER
        + "torch.cuda.init(); graph = torch.cuda.CUDAGraph(); graph.capture_begin(); graph.capture_end()\n"
        "for _ in range(50): graph.replay()\n"
        "time.sleep(0.6); assert log == []; assert session.current().tracing._tracer is None\n"
        "with profiler.profile(): pass\n"
        "time.sleep(0.2); assert log == []\n",
        tmp_path,
        REPLAYWATCH_PROBE_KERNELS="",
    )
    assert window.dispatch.replays == 50
    (reason,) = {b.reason for b in window.blind if b.signal == "kernels"}  # a profile changes nothing about it
    assert "start one replica with REPLAYWATCH_PROBE_KERNELS=1" in reason
