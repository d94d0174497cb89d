"""torch.compile: recordings, re-recordings, skips with reasons, silent losses and modes, on every generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe.harness import GENERATIONS, Listener, Pump, run, seen
from replaywatch.contract.window import FALLBACK_REASONS
from replaywatch.contract.wire import decode
from replaywatch.probe.inductor import UNTOLD
from replaywatch.probe.inductor_reasons import reason_of, tidy

START = "import replaywatch.probe as probe; probe.start()\n"
TREES = """
import torch
torch.cuda.init()
import torch._inductor.cudagraph_trees as trees, torch._inductor.compile_fx as compile_fx
import torch._inductor.output_code as output_code
"""
SKIPS = (
    ("skipping cudagraphs due to mutated inputs (36 instances). Found from : \n File \"/a/b.py\", line 3\n",
     "mutated_input"),
    ("skipping cudagraphs due to cpu device (arg0_1)", "cpu_tensor"),
    ("skipping cudagraphs due to multiple devices: device(type='cuda', index=0), device(type='cpu')", "cpu_tensor"),
    ("skipping cudagraphs due to input storage mutation (1 instances)", "mutated_input"),
    ("disabling cudagraphs due to incompatible op aten.nonzero.default", "incompatible_op"),
    ("skipping cudagraphs due to control flow operator: torch.cond.", "incompatible_op"),
    ("graph with symbolic shapes inputs and config.triton.cudagraph_skip_dynamic_graphs=True.", "dynamic_shape"),
    ("skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on cudagraph node 7 due to static "
     "input data pointer changed.", "rerecord_limit"),
    ("skipping cudagraphs due to non-Tensor inputs", "cpu_tensor"),
    ("skipping cudagraphs due to bisector", "forced_eager"),
    ("disabling cudagraphs for backward due to override_cudagraphs annotation", "forced_eager"),
    ("skipping cudagraphs due to something nobody has heard of", "other"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), SKIPS)
def test_every_message_has_a_reason_of_the_contract(text: str, reason: str) -> None:
    assert reason_of(text) == reason
    assert reason in FALLBACK_REASONS


def test_equal_causes_give_equal_texts() -> None:
    one = tidy(
        "skipping cudagraph due to function 3 exceeding max re-recording limit (=128) on cudagraph node 7 due to x."
    )
    two = tidy(
        "skipping cudagraph due to function 9 exceeding max re-recording limit (=128) on cudagraph node 1 due to x."
    )
    assert one == two
    assert tidy(SKIPS[0][0])[1] == "b.py:3"


@pytest.mark.parametrize("torch", GENERATIONS)
@pytest.mark.parametrize("first", ["probe first", "torch first"])
def test_calls_are_steps_and_recordings_are_told_apart(torch: str, first: str, tmp_path: Path) -> None:
    begin = START + TREES if first == "probe first" else TREES + START
    window = seen(
        begin
        + """
manager = trees.CUDAGraphTreeManager(mutating=["mutates"])
for _ in range(10):
    manager.run("address", function_id="steady")
for at in range(6):
    manager.run(f"address {at}", function_id="moves")
for _ in range(4):
    manager.run("address", function_id="mutates")
""",
        tmp_path,
        torch,
    )
    assert window.dispatch.steps == {"full": 8, "eager": 2 + 6 + 4}
    assert window.dispatch.fallbacks == {"warm_up": 4, "other": 4, "mutated_input": 4}
    assert window.dispatch.captures == {"ok": 6}
    assert window.dispatch.replays == 8
    words = "static input data pointer changed" if torch != "2.4" else "invariant"
    assert [(o.kind, o.detail, o.count) for o in window.observations] == [("inductor_rerecord", words, 4)]
    assert window.memory.by_owner is None or set(window.memory.by_owner) <= {"inductor"}


@pytest.mark.parametrize("torch", ["2.4", "2.7", "2.14"])
def test_a_mismatch_belongs_to_its_own_call(torch: str, tmp_path: Path) -> None:
    """The first recording of a function does not fit and the second does; later another path is recorded."""
    window = seen(
        START
        + TREES
        + """
manager = trees.CUDAGraphTreeManager()
for address in ("one", "one", "two"):
    manager.run(address, function_id="moves")
manager.run("two", function_id="moves")
manager.nodes.clear()
manager.run("three", function_id="moves")
""",
        tmp_path,
        torch,
    )
    assert window.dispatch.steps == {"full": 1, "eager": 4}
    assert [o.count for o in window.observations if o.kind == "inductor_rerecord"] == [1]


@pytest.mark.parametrize("torch", GENERATIONS)
@pytest.mark.parametrize("first", ["probe first", "torch first"])
def test_skips_are_counted_once_whichever_module_reports_them(torch: str, first: str, tmp_path: Path) -> None:
    begin = START + TREES if first == "probe first" else TREES + START
    window = seen(
        begin
        + """
import torch._inductor.cudagraph_utils as utils
for _ in range(3):
    utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs (36 instances)")
compile_fx.lower("skipping cudagraphs due to cpu device (arg0_1)")
trees.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs (36 instances)")
""",
        tmp_path,
        torch,
        PYTHONWARNINGS="default",
    )
    found = {o.detail: o.count for o in window.observations if o.kind == "inductor_skip"}
    assert found == {
        "mutated_input: skipping cudagraphs due to mutated inputs (36 instances)": 4,
        "cpu_tensor: skipping cudagraphs due to cpu device (arg0_1)": 1,
    }


def test_skips_that_only_the_counter_shows_are_reported_as_such(tmp_path: Path) -> None:
    window = seen(
        START + TREES + "captured = torch.cuda.CUDAGraph(); captured.capture_begin(); captured.capture_end()\n"
        "from torch._dynamo.utils import counters\ncounters['inductor']['cudagraph_skips'] += 2\n",
        tmp_path,
    )
    assert [(o.detail, o.count) for o in window.observations] == [(UNTOLD, 2)]


def test_a_forked_child_tells_no_skip_of_its_parents_again(tmp_path: Path) -> None:
    run(
        START + TREES + "import os\nfrom torch._dynamo.utils import counters\n"
        "from replaywatch.probe.session import current\ncounters['inductor']['cudagraph_skips'] += 2\n"
        "child = os.fork()\nif not child:\n    current().inductor.poll_counters()\n"
        "    assert current().sight.take_observations() == []\n    counters['inductor']['cudagraph_skips'] += 3\n"
        "    current().inductor.poll_counters()\n"
        "    assert [o['count'] for o in current().sight.take_observations()] == [3]\n    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n",
        tmp_path / "nobody.sock",
    )


@pytest.mark.parametrize("torch", ["2.9", "2.11", "2.13", "2.14"])
def test_the_silent_return_of_a_partition_is_seen(torch: str, tmp_path: Path) -> None:
    window = seen(
        START
        + TREES
        + """
from types import SimpleNamespace as Bag
def compiled(reasons, maps):
    return Bag(cudagraph_info=Bag(cudagraph_fail_reasons=reasons), partition_maps=maps)
for graph in (compiled(["mutated inputs"], [1]), compiled([], []), compiled([], [1])):
    output_code.cudagraph_partition_post_compile([], graph, True, {}, None)
""",
        tmp_path,
        torch,
    )
    assert {o.detail for o in window.observations} == {
        "mutated_input: mutated inputs (torch does not log this)",
        "incompatible_op: no partition can be captured (torch does not log this)",
    }


def test_a_compiled_function_with_other_fields_is_no_silent_loss(tmp_path: Path) -> None:
    window = seen(
        TREES
        + "output_code.cudagraph_partition_post_compile = lambda inputs, graph, *more: None\n"
        + START
        + "output_code.cudagraph_partition_post_compile([], object(), True, {}, None)\n",
        tmp_path,
    )
    assert window.observations == ()
    assert "inductor partitions" in {b.signal for b in window.blind}


@pytest.mark.parametrize("torch", GENERATIONS)
def test_a_version_as_it_is_has_every_hook_in_its_place(torch: str, tmp_path: Path) -> None:
    window = seen(START + TREES, tmp_path, torch)
    missing = {"2.4": {"inductor sizes", "inductor capture sizes"}, "2.7": {"inductor capture sizes"}}
    assert {b.signal for b in window.blind} == missing.get(torch, set())


@pytest.mark.parametrize("torch", ["2.9", "2.14"])
def test_sizes_that_are_left_out_are_fallbacks(torch: str, tmp_path: Path) -> None:
    window = seen(
        START + TREES + "from torch._inductor import config\nconfig.triton.cudagraph_capture_sizes = (8,)\n"
        "assert trees.is_cudagraph_capture_sizes(8)\n"
        "for _ in range(5): assert not trees.is_cudagraph_capture_sizes(9)\n",
        tmp_path,
        torch,
    )
    assert window.dispatch.steps == {"eager": 5}
    assert window.dispatch.fallbacks == {"no_matching_graph": 5}


def test_a_version_that_does_not_tell_left_out_sizes_is_blind_there(tmp_path: Path) -> None:
    window = seen(START + TREES, tmp_path, "2.4")
    assert "inductor capture sizes" in {b.signal for b in window.blind}


def test_a_policy_that_declines_is_named(tmp_path: Path) -> None:
    """torch bumps its counter and says nothing (output_code.CompiledFxGraph.post_compile, 2.13 and later)."""
    window = seen(
        START + TREES + "from torch._inductor import config\nfrom torch._dynamo.utils import counters\n"
        "class OuterOnly:\n    pass\nconfig.cudagraph_policy = OuterOnly()\n"
        "counters['inductor']['cudagraph_skips'] += 1\n",
        tmp_path,
    )
    assert [o.detail for o in window.observations] == ["forced_eager: OuterOnly declined"]


def test_compile_modes_are_counted_for_device_functions_only(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        pump = Pump(listener)
        run(
            START
            + TREES
            + """
class Tensor:
    is_cuda = True
class Host:
    is_cuda = False
for _ in range(3):
    compile_fx.compile_fx(None, [Host(), Tensor()])
compile_fx.compile_fx(None, [Tensor()], config_patches={"triton.cudagraphs": True})
compile_fx.compile_fx(None, [Host()])
""",
            listener,
        )
        batches = [decode(frame) for frame in pump.stop()]
    configs = [config for batch in batches for config in batch.configs.values()]
    assert configs[-1].compile_mode == "default"
    assert configs[-1].settings == {"compiled.default": "3", "compiled.reduce-overhead": "1"}


@pytest.mark.parametrize(
    ("change", "signal"),
    [
        ("del trees.CUDAGraphTreeManager.run_eager", "inductor steps"),
        ("trees.CUDAGraphTreeManager.record_function = lambda self: None", "inductor recordings"),
        ("del trees.CUDAGraphNode", "inductor recordings"),
        ("del compile_fx.compile_fx", "torch.compile modes"),
        ("del output_code.cudagraph_partition_post_compile", "inductor partitions"),
        (
            "from torch._inductor import cudagraph_utils as utils; del utils.maybe_warning_due_to_dynamic_shape",
            "inductor sizes",
        ),
        (
            "from torch._inductor import cudagraph_utils as utils; del utils.log_cudagraph_skip_and_bump_counter",
            "inductor skips",
        ),
        ("import torch._dynamo.utils as utils; del utils.counters", "inductor skips without a reason"),
        ("del torch.cuda.graphs.CUDAGraph.instantiate", "graph instantiations"),
        ("del torch.cuda.graphs.CUDAGraph.reset", "graph resets"),
    ],
)
def test_a_hook_that_cannot_be_placed_is_blind_by_name(change: str, signal: str, tmp_path: Path) -> None:
    window = seen(TREES + change + "\n" + START, tmp_path)
    assert signal in {b.signal for b in window.blind}


def test_calls_of_compiled_functions_are_no_steps_where_an_engine_tells_its_own(tmp_path: Path) -> None:
    window = seen(
        START + TREES + "manager = trees.CUDAGraphTreeManager()\n"
        "for _ in range(30):\n    for part in range(3):\n        manager.run('address', function_id=part)\n"
        "    probe.record_step('full')\n",
        tmp_path,
        REPLAYWATCH_PROBE_WINDOW_SECONDS="300",
    )
    assert window.dispatch.steps == {"full": 30}
    assert window.dispatch.replays == 3 * 28
