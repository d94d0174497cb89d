"""The hooks on the real torch that is installed here; its CPU build has the classes, the logs and Inductor."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from probe.harness import Listener, Pump, merged, run
from replaywatch.contract.window import Window
from replaywatch.contract.wire import decode

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed in this environment"),
]
START = "import replaywatch.probe as probe; probe.start()\n"
WINDOW = "from replaywatch.probe import session; session.current().wake(); session.current().ledger.ever = True\n"


def heard(code: str, folder: Path, **extra: str) -> Window:
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        try:
            run(code, listener, torch=None, PYTHONWARNINGS="default", **extra)
        finally:
            frames = pump.stop()
    return merged([decode(frame) for frame in frames])


@pytest.mark.parametrize("first", ["probe first", "torch first"])
def test_every_hook_finds_its_place(first: str, tmp_path: Path) -> None:
    modules = (
        "import torch, torch._inductor.cudagraph_trees, torch._inductor.compile_fx, torch._inductor.output_code\n"
        "import torch.autograd.profiler\n"
    )
    window = heard((START + modules if first == "probe first" else modules + START) + WINDOW, tmp_path)
    assert {b.signal for b in window.blind} == set(), window.blind
    assert window.workload.engine == "torch"


def test_stop_puts_the_real_methods_back(tmp_path: Path) -> None:
    run(
        "import torch, torch.autograd.profiler as profiler, torch._inductor.cudagraph_trees as trees\n"
        "kept = (torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_end, profiler._enable_profiler,\n"
        "        trees.CUDAGraphTreeManager.run)\n" + START + "assert torch.cuda.CUDAGraph.replay is not kept[0]\n"
        "probe.stop()\n"
        "assert kept == (torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_end, profiler._enable_profiler,\n"
        "                trees.CUDAGraphTreeManager.run)\n",
        tmp_path / "nobody.sock",
        torch=None,
        PYTHONWARNINGS="default",
    )


def test_a_real_skip_is_heard_and_printed_as_ever(tmp_path: Path) -> None:
    program = (
        "import torch, torch._inductor.cudagraph_utils as utils\n"
        "utils.log_cudagraph_skip_and_bump_counter('skipping cudagraphs due to mutated inputs (2 instances)')\n"
    )
    with Listener(tmp_path / "agent.sock") as listener:
        alone = run(program, listener, torch=None, PYTHONWARNINGS="default").stderr
        watched = run(START + program + WINDOW, listener, torch=None, PYTHONWARNINGS="default").stderr
        window = merged(listener.batches(1))
    assert [(o.kind, o.detail) for o in window.observations] == [
        ("inductor_skip", "mutated_input: skipping cudagraphs due to mutated inputs (2 instances)")
    ]
    printed = [
        [line.split("] ")[-1] for line in text.splitlines() if "cudagraphs" in line] for text in (alone, watched)
    ]
    assert printed[0] == printed[1]


def test_the_real_profiler_is_untouched_and_seen(tmp_path: Path) -> None:
    window = heard(
        START
        + """
import torch
from replaywatch.probe import session
states = []
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    torch.ones(3) + torch.ones(3)
    states.append(session.current().tracing._profilers)
states.append(session.current().tracing._profilers)
assert states == [1, 0], states
assert any(event.key == "aten::add" for event in profile.key_averages())
schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profile:
    for _ in range(8):
        torch.ones(3) + torch.ones(3)
        profile.step()
assert session.current().tracing._profilers == 0
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profile:
    torch.ones(3)
    profile.step()  # leaves while it is only prepared
assert session.current().tracing._profilers == 0
"""
        + WINDOW,
        tmp_path,
    )
    assert window.cost is not None
    assert window.cost.errors == 0


def test_a_compiled_function_runs_as_without_the_probe(tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None and not Path("/usr/bin/g++").exists():
        pytest.skip("torch.compile needs a C++ compiler")
    program = (
        "import torch\n@torch.compile(mode='reduce-overhead')\ndef f(x): return (x.sin() + 1).cos()\n"
        "x = torch.linspace(0, 1, 64)\nprint(f(x).sum().item(), f(x * 2).sum().item())\n"
    )
    with Listener(tmp_path / "agent.sock") as listener:
        alone = run(program, listener, torch=None, PYTHONWARNINGS="default").stdout
        watched = run(START + program, listener, torch=None, PYTHONWARNINGS="default").stdout
    assert alone == watched


def test_torch_compile_does_not_trace_into_the_wrappers(tmp_path: Path) -> None:
    heard(
        """
import torch
from replaywatch.probe.patching import PatchSet
from replaywatch.probe.sight import Sight
calls = []
class Graph:
    def replay(self):
        return 1
def wrapping(original, on):
    def replay(self):
        calls.append(on)
        return original(self)
    return replay
patches = PatchSet(Sight())
assert patches.wrap(Graph, "replay", "replays", wrapping)
graph = Graph()
def step(x):
    graph.replay()
    return x + 1
compiled = torch.compile(step, backend="eager")
for at in range(5):
    assert compiled(torch.tensor(at)).item() == at + 1
assert len(calls) == 5, calls
from torch._dynamo.utils import counters
assert not any("append" in str(reason) for reason in counters["graph_break"]), counters
"""
        + START
        + WINDOW,
        tmp_path,
    )
