"""Counts are exact, on every torch generation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe.harness import GENERATIONS, Listener, pythons, run, seen
from replaywatch.contract.window import merge_all
from replaywatch.probe.graph_nodes import NodeCounter
from replaywatch.probe.graph_patches import GraphPatches
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.patching import Switch
from replaywatch.probe.replay_timing import ReplayTimer
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import Recorders

START = "import replaywatch.probe as probe; probe.start()\n"
GRAPHS = """
import torch
torch.cuda.init()
def captured(**options):
    made = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(made):
        pass
    return made
"""


@pytest.mark.parametrize("torch", GENERATIONS)
@pytest.mark.parametrize("first", ["probe first", "torch first"])
def test_replays_captures_and_destroys_are_exact(torch: str, first: str, tmp_path: Path) -> None:
    begin = START + GRAPHS if first == "probe first" else GRAPHS + START
    window = seen(
        begin
        + """
graphs = [captured() for _ in range(5)]
for at, made in enumerate(graphs):
    for _ in range(100 * at + 7):
        made.replay()
graphs[1].reset()
del graphs[2], made
""",
        tmp_path,
        torch,
    )
    dispatch = window.dispatch
    assert dispatch.replays == 5 * 7 + 100 * (1 + 2 + 3 + 4)
    assert dispatch.captures == {"ok": 5}
    assert dispatch.instantiations == 5
    assert dispatch.destroys == 2
    assert dispatch.resets == 1
    assert dispatch.live_graphs == 3
    assert dispatch.unused_graphs == 0
    assert window.timing.capture is not None
    assert window.timing.capture.count == 5
    assert window.timing.graph_launch_call is not None
    assert {b.signal for b in window.blind} == {"graph nodes"}, window.blind


@pytest.mark.parametrize("torch", ["2.9", "2.13", "2.14"])
def test_a_kept_graph_counts_as_instantiated_once_it_is(torch: str, tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
asked, unasked, never = (captured(keep_graph=True) for _ in range(3))
asked.instantiate()
for _ in range(3):
    asked.replay(), unasked.replay()
""",
        tmp_path,
        torch,
    )
    assert window.dispatch.captures == {"ok": 3}
    assert window.dispatch.instantiations == 2
    assert window.dispatch.unused_graphs == 1


@pytest.mark.parametrize("torch", GENERATIONS)
def test_failing_calls_are_counted_by_error_and_raised_untouched(torch: str, tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
from torch import device
good = captured()
first = device.error(700, "an illegal memory access was encountered")
device.fail["replay"] = first
try:
    good.replay()
except RuntimeError as error:
    assert error is first
device.fail["capture_end"] = RuntimeError("CUDA error: operation failed due to a previous error during capture")
try:
    captured()
except RuntimeError:
    pass
device.fail["capture_begin"] = RuntimeError("CUDA error: out of memory")
try:
    captured()
except RuntimeError:
    pass
try:
    raise ValueError("the caller handles an error while it replays")
except ValueError:
    good.replay()
""",
        tmp_path,
        torch,
    )
    assert window.dispatch.replays == 1
    assert window.dispatch.captures == {"ok": 1, "failed": 2}
    assert window.dispatch.failed_calls == {
        "cudaErrorIllegalAddress": 1,
        "cudaErrorStreamCaptureInvalidated": 1,
        "cudaErrorMemoryAllocation": 1,
    }
    kinds = {o.kind: o.detail for o in window.observations}
    assert kinds["graph_call_failed"] == "replay: cudaErrorIllegalAddress"
    assert "capture_failed" in kinds


def test_an_abandoned_capture_is_a_failed_one(tmp_path: Path) -> None:
    window = seen(START + GRAPHS + "made = torch.cuda.CUDAGraph(); made.capture_begin(); del made\n", tmp_path)
    assert window.dispatch.captures == {"failed": 1}
    assert window.dispatch.failed_calls == {"abandoned": 1}


def test_throwaway_captures_are_labelled_and_are_not_unused(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
with probe.throwaway():
    kept = captured()
also = captured()
also.replay()
""",
        tmp_path,
    )
    assert window.dispatch.captures == {"throwaway": 1, "ok": 1}
    assert window.dispatch.unused_graphs == 0


def test_graphs_captured_before_the_probe_are_counted_from_then_on(tmp_path: Path) -> None:
    window = seen(
        GRAPHS + "old = captured(); old.replay()\n" + START + "old.replay(); old.replay()\n",
        tmp_path,
    )
    assert window.dispatch.replays == 2
    assert window.dispatch.captures == {}
    assert window.dispatch.live_graphs == 1


def test_counts_of_many_threads_are_exact(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
import sys, threading
sys.setswitchinterval(1e-6)
shared = captured()
own = [captured() for _ in range(4)]
def work(mine):
    for _ in range(2000):
        shared.replay()
        mine.replay()
threads = [threading.Thread(target=work, args=(mine,)) for mine in own]
[t.start() for t in threads]
[t.join() for t in threads]
""",
        tmp_path,
    )
    assert window.dispatch.replays == 4 * 2 * 2000


def test_pool_bytes_are_told_by_owner(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
def grow(by, **options):
    made = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(made):
        torch.cuda.reserved_bytes += by
    return made
used, unused, gone = grow(1000), grow(200), grow(30)
used.replay()
del gone
""",
        tmp_path,
    )
    assert window.memory.pool_bytes == 1200
    assert window.memory.unused_bytes == 200
    assert window.memory.by_owner == {"user": 1200}


@pytest.mark.parametrize(
    ("caller", "owner"),
    [
        ("worker/gpu_model_runner", "vllm"),
        ("spec_decode/eagle", "vllm draft"),
        ("worker/gpu/spec_decode/speculator", "vllm draft"),
        ("worker/encoder_cudagraph", "vllm encoder"),
    ],
)
def test_part_of_an_engine_owns_what_is_captured_for_it(caller: str, owner: str, tmp_path: Path) -> None:
    window = seen(START + GRAPHS + capturing(tmp_path, caller) + "made = run()\n", tmp_path)
    assert window.memory.by_owner == {owner: 10}


def test_graphs_of_a_draft_and_what_becomes_of_them_are_a_window_of_their_own(tmp_path: Path) -> None:
    main = (
        capturing(tmp_path, "worker/gpu_model_runner") + "made = [run(), run()]\nfor _ in range(3): made[0].replay()\n"
    )
    draft = capturing(tmp_path, "spec_decode/eagle") + "made += [run(), run()]\nmade[2].replay()\n"
    with Listener(tmp_path / "agent.sock") as listener:
        run(START + GRAPHS + main + draft, listener)
        windows = [window for batch in listener.batches(0.1) for window in batch.windows]
    for component, replays, owner in ((None, 3, "vllm"), ("draft", 1, "vllm draft")):
        own = merge_all([w for w in windows if w.workload.component == component])
        dispatch = own.dispatch
        assert (dispatch.captures, dispatch.live_graphs, dispatch.unused_graphs) == ({"ok": 2}, 2, 1)
        assert (dispatch.replays, dispatch.replays_by_owner) == (replays, {owner: replays})
        assert own.timing.capture is not None
        assert own.timing.capture.count == 2
    assert sum(w.cost.hook_calls for w in windows if w.cost) == 4


def capturing(folder: Path, caller: str) -> str:
    """A program's beginning that imports `run`, with which a module of a stand-in vLLM captures a graph."""
    files = {
        "compilation/cuda_graph": "import torch\ndef capture():\n    made = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(made):\n        torch.cuda.reserved_bytes += 10\n    return made\n",
        f"v1/{caller}": "from vllm.compilation.cuda_graph import capture\ndef run():\n    return capture()\n",
    }
    for name, text in files.items():
        path = folder / f"vllm/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    module = f"vllm.v1.{caller.replace('/', '.')}"
    return f"import sys; sys.path.insert(0, {str(folder)!r})\nfrom {module} import run\n"


@pytest.mark.parametrize("owner", ["vllm", "sglang", "transformers"])
def test_the_owner_is_the_engine_that_captured(owner: str, tmp_path: Path) -> None:
    package = tmp_path / owner
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "runner.py").write_text(
        "import torch\ndef capture():\n    made = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(made):\n        torch.cuda.reserved_bytes += 10\n    return made\n"
    )
    window = seen(
        START + GRAPHS + f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"from {owner}.runner import capture\nmade = capture()\n",
        tmp_path,
    )
    assert window.memory.by_owner == {owner: 10}
    assert window.workload.engine == owner


@pytest.mark.parametrize("python", pythons() or [pytest.param("", marks=pytest.mark.skip("no other interpreter"))])
def test_every_interpreter_counts_the_same(python: str, tmp_path: Path) -> None:
    code = START + GRAPHS + "made = captured()\nfor _ in range(1234):\n    made.replay()\nprobe.stop()\n"
    with Listener(tmp_path / "agent.sock") as listener:
        run(code, listener, "2.13", python)
        assert sum(json.loads(f)["windows"][0]["dispatch"]["replays"] for f in listener.frames()) == 1234


@pytest.mark.parametrize(
    ("code", "index"),
    [
        ("torch.cuda.set_device(3)\ncaptured().replay()\n", 3),
        ("from torch import device\ndevice.contexts.clear()\ntorch.cuda.set_device(2)\n", 2),
        ("torch.cuda.set_device(1)\n", 1),
    ],
)
def test_the_device_is_the_one_that_is_used_not_the_helper_threads(code: str, index: int, tmp_path: Path) -> None:
    window = seen(START + GRAPHS + code + "import time; time.sleep(0.3)\n", tmp_path)
    assert window.workload.gpu_index == index


def test_a_visible_device_has_its_index_on_the_host(tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "torch.cuda.set_device(1)\ncaptured().replay()\n", tmp_path, CUDA_VISIBLE_DEVICES="4,7"
    )
    assert window.workload.gpu_index == 7


@pytest.mark.parametrize(
    ("body", "blind"), [("return before(self)", False), ("return torch._C._CUDAGraph.replay(self)", True)]
)
def test_a_tool_over_the_probes_hook_blinds_it_only_where_it_does_not_call_it(
    body: str, blind: bool, tmp_path: Path
) -> None:
    window = seen(
        START
        + GRAPHS
        + f"""
import time
from replaywatch.probe.session import current
def told():
    return "graph replays" in {{b["signal"] for b in current().sight.blind_spots()}}
def work(until, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        made.replay()
        time.sleep(0.01)
made = captured()
before = torch.cuda.CUDAGraph.replay
def replay(self):
    {body}
torch.cuda.CUDAGraph.replay = replay
work(told, 10 if {blind} else 1)
assert told() is {blind}
torch.cuda.CUDAGraph.replay = before
work(lambda: not told(), 10)
assert not told()
""",
        tmp_path,
    )
    assert ("another tool put its own function over the probe's" in {b.reason for b in window.blind}) is blind


@pytest.mark.parametrize("torch", GENERATIONS)
def test_no_hook_of_graphs_is_blind_under_a_tool_that_calls_it(torch: str, tmp_path: Path) -> None:
    run(
        START
        + GRAPHS
        + """
from replaywatch.probe.session import current
patches = [p for p in current().patches._patches if p.owner is torch.cuda.CUDAGraph]
assert len(patches) > 3, patches
for patch in patches:
    def tool(self, *args, ours=patch.wrapper, **kwargs):
        return ours(self, *args, **kwargs)
    setattr(torch.cuda.CUDAGraph, patch.name, tool)
for _ in range(3):
    made = captured()
    made.replay()
    if hasattr(made, "instantiate"):
        made.instantiate()
    made.reset()
    assert current().patches.overwritten() == []
""",
        tmp_path / "nobody.sock",
        torch,
        REPLAYWATCH_PROBE_WINDOW_SECONDS="300",
    )


@pytest.mark.parametrize("pool", ["(7, 7)", "None"])
def test_graphs_that_went_leave_nothing_behind_but_sums(pool: str, tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + f"""
import gc
from replaywatch.probe.session import current
from replaywatch.probe.slots import GraphSlot
def grow(by):
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made, pool={pool}):
        torch.cuda.reserved_bytes += by
    made.replay()
    return made
kept = grow(1000)
for _ in range(50):
    made = grow(10)
    current().ledger.drain()
del made
current().ledger.drain()
gc.collect()
assert sum(isinstance(found, GraphSlot) for found in gc.get_objects()) <= 3
""",
        tmp_path,
        REPLAYWATCH_PROBE_WINDOW_SECONDS="300",
    )
    size = 1000 if pool == "None" else 1500
    assert window.memory.pool_bytes == size
    assert window.memory.unused_bytes == 0
    assert window.memory.by_owner == {"user": size}
    assert window.dispatch.replays == 51
    assert window.dispatch.destroys == 50


def test_a_reset_that_fails_is_counted_by_its_error(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
from torch import device
made = captured()
for error in (device.error(718, "invalid program counter"), device.error(721, "a text of tomorrow")):
    device.fail["reset"] = error
    try:
        made.reset()
    except RuntimeError as raised:
        assert raised is error
made.replay()
""",
        tmp_path,
    )
    assert window.dispatch.failed_calls == {"cudaErrorInvalidPc": 1, "cudaError_721": 1}
    assert {o.detail for o in window.observations} == {"reset: cudaErrorInvalidPc", "reset: cudaError_721"}
    assert window.dispatch.destroys == 0
    assert window.dispatch.replays == 1


@pytest.mark.parametrize("visible", ["GPU-aaaa,GPU-bbbb", "MIG-cccc,MIG-dddd", "GPU-aaaa"])
def test_an_index_that_the_visible_devices_do_not_tell_is_absent(visible: str, tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "torch.cuda.set_device(1)\ncaptured().replay()\n", tmp_path, CUDA_VISIBLE_DEVICES=visible
    )
    assert window.workload.gpu_index is None
    assert window.workload.gpu_uuid == "GPU-00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("torch", ["2.4", "2.9", "2.14"])
def test_what_happens_to_graphs_is_told_by_owner(torch: str, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    (tmp_path / "vllm/runner.py").write_text(
        "import torch\ndef capture():\n    made = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(made):\n        pass\n    return made\n"
    )
    window = seen(
        START
        + GRAPHS
        + f"""
import sys, time
sys.path.insert(0, {str(tmp_path)!r})
from vllm.runner import capture
own, gone, reset, used = captured(), capture(), capture(), capture()
for _ in range(7):
    own.replay(), gone.replay(), reset.replay(), used.replay()
time.sleep(0.3)
used.replay()
reset.reset()
del gone
""",
        tmp_path,
        torch,
    )
    dispatch = window.dispatch
    assert dispatch.replays_by_owner == {"user": 7, "vllm": 22}
    assert dispatch.instantiations_by_owner == {"user": 1, "vllm": 3}
    assert dispatch.destroys_by_owner == {"vllm": 2}
    assert (dispatch.replays, dispatch.instantiations, dispatch.destroys, dispatch.resets) == (29, 4, 2, 1)


def test_an_adapters_hook_that_another_tool_replaced_is_blind(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
import time
from replaywatch.probe.engines.port import EngineAdapter
from replaywatch.probe.placing import attach_adapters
from replaywatch.probe.session import current
class Runner:
    def step(self):
        pass
def wrapping(original, on):
    def step(self):
        return original(self)
    return step
attach_adapters(current())
adapter = EngineAdapter(current().port)
current().adapters.append(adapter)
adapter.patches.wrap(Runner, "step", "engine steps", wrapping)
Runner.step = lambda self: None
made = captured()
time.sleep(0.6)
""",
        tmp_path,
    )
    assert "engine steps" in {b.signal for b in window.blind}


HOOKS = """
import torch.cuda.graphs as hooks
def placed(name):
    return len(getattr(hooks, f"_global_{name}_hooks"))
"""


@pytest.mark.parametrize("first", ["probe first", "torch first"])
def test_instantiations_are_counted_by_torchs_own_hook_where_another_tool_has_the_method(
    first: str, tmp_path: Path
) -> None:
    other = """
def instantiate(self):
    torch._C._CUDAGraph.instantiate(self)
    hooks._run_global_hooks(hooks._global_instantiate_hooks, self)
torch.cuda.CUDAGraph.instantiate = instantiate
"""
    begin = START + GRAPHS + HOOKS if first == "probe first" else GRAPHS + HOOKS + START
    window = seen(
        begin
        + "from torch import device\n"
        + other
        + """
assert (placed("capture_start"), placed("instantiate"), placed("destroy"), placed("replay_start")) == (1, 1, 0, 0)
kept = captured(keep_graph=True)
captured().replay()
kept.instantiate(), kept.instantiate(), kept.replay()
""",
        tmp_path,
        "2.14",
    )
    assert window.dispatch.instantiations == 3
    assert window.dispatch.captures == {"ok": 2}


def test_a_hook_of_torchs_that_fails_takes_no_other_one_with_it(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + HOOKS
        + """
from replaywatch.probe.session import current
ledger = current().ledger
began, ledger.capture_began = ledger.capture_began, None
captured()
ledger.capture_began = began
assert (placed("capture_start"), placed("instantiate")) == (0, 1)
captured(keep_graph=True).instantiate()
""",
        tmp_path,
        "2.14",
    )
    assert window.dispatch.instantiations == 2
    assert "graph captures" in {b.signal for b in window.blind}
    assert "graph instantiations" not in {b.signal for b in window.blind}


MARKED = """
def marks(graph): return [name for name in vars(graph) if "replaywatch" in name]
made, reset, again = captured(), captured(), captured()
assert marks(made)
reset.reset()
assert not marks(reset)
with torch.cuda.graph(again): pass  # captured once more: a slot of its own
for _ in range(3): made.replay(); again.replay()
probe.stop()
assert not marks(made) and not marks(again)
made.replay()
probe.start()
for _ in range(5): made.replay()
"""


@pytest.mark.parametrize("torch", ["2.4", "2.13"])
def test_graphs_carry_their_slot_only_while_the_probe_runs(torch: str, tmp_path: Path) -> None:
    window = seen(START + GRAPHS + MARKED, tmp_path, torch)
    assert window.dispatch.replays == 6 + 5
    assert window.dispatch.replays_by_owner is not None
    assert window.dispatch.replays_by_owner["unknown"] == 5


def test_a_graph_without_attributes_is_counted_by_its_id() -> None:
    class Bare:
        __slots__ = ("__weakref__",)

        def replay(self) -> None:
            pass

    sight = Sight()
    ledger = GraphLedger(sight, Recorders(0, lambda: None), lambda: None)
    ledger.recorders.here().left = 1 << 30  # a torch that another test loaded has no stream to note
    patches = GraphPatches(ledger, ReplayTimer(ledger, sight, 30.0), sight, NodeCounter(sight))
    hook = patches.replay(Bare.replay, Switch())
    one, two = Bare(), Bare()
    for _ in range(7):
        hook(one)
    hook(two)
    assert sorted(slot.replays for slot in ledger.slots.values()) == [1, 7]
    assert sight.errors == 0
