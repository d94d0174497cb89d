"""The host is never harmed: forks, exits, sockets that are full or dead, other tools' patches, faults of our own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probe.harness import GENERATIONS, Listener, Pump, merged, program_environment, run, seen, until
from replaywatch.contract.wire import decode

START = "import replaywatch.probe as probe; probe.start()\n"
GRAPHS = """
import torch
torch.cuda.init()
def captured():
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        pass
    return made
"""


def by_pid(frames: list[bytes]) -> dict[int, list[bytes]]:
    """Frames by the process that sent them."""
    found: dict[int, list[bytes]] = {}
    for frame in frames:
        found.setdefault(json.loads(frame)["windows"][0]["workload"]["pid"], []).append(frame)
    return found


def all_frames(code: str, folder: Path, torch: str = "2.13", **extra: str) -> list[bytes]:
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        try:
            run(code, listener, torch, **extra)
        finally:
            frames = pump.stop()
    return frames


@pytest.mark.parametrize("method", ["os.fork", "multiprocessing fork", "multiprocessing spawn"])
def test_children_count_for_themselves_from_zero(method: str, tmp_path: Path) -> None:
    work = "made = captured()\nfor _ in range({n}):\n    made.replay()\n"
    program = tmp_path / "program.py"
    body = START + GRAPHS
    if method == "os.fork":
        program.write_text(
            body + work.format(n=10) + "import os, sys\nchild = os.fork()\nif not child:\n"
            "    made = captured()\n    for _ in range(3):\n        made.replay()\n    probe.stop()\n    os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\nmade.replay()\n"
        )
    else:
        program.write_text(
            body + "import multiprocessing\ndef child():\n    made = captured()\n"
            "    for _ in range(3):\n        made.replay()\n"
            'if __name__ == "__main__":\n    made = captured()\n    for _ in range(11):\n        made.replay()\n'
            f"    context = multiprocessing.get_context({method.split()[1]!r})\n"
            "    process = context.Process(target=child)\n    process.start()\n    process.join()\n"
            "    assert process.exitcode == 0\n"
        )
    frames = by_pid(all_frames(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", tmp_path)
                    if method != "multiprocessing spawn" else _frames_of_file(program, tmp_path))  # fmt: skip
    replays = sorted(merged([decode(f) for f in sent]).dispatch.replays or 0 for sent in frames.values())
    assert replays == [3, 11]


def _frames_of_file(program: Path, folder: Path) -> list[bytes]:
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        done = subprocess.run(
            [sys.executable, str(program)],
            env=program_environment(listener, "2.13"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        frames = pump.stop()
    assert done.returncode == 0, done.stderr
    return frames


def test_a_child_forked_while_a_thread_holds_the_patches_imports_and_stops_as_usual(tmp_path: Path) -> None:
    run(
        START + "import os, signal, threading\nfrom replaywatch.probe import placing, session\n"
        "ours = session.current()\nplacing.attach_adapters(ours)\nassert ours.adapters\n"
        "held, go = threading.Event(), threading.Event()\n"
        "def hold():\n    with ours.patches._lock, ours.adapters[0].patches._lock:\n        held.set(); go.wait()\n"
        "threading.Thread(target=hold).start()\nheld.wait()\nchild = os.fork()\n"
        "if not child:\n    signal.alarm(10)\n    import torch\n    probe.stop()\n    os._exit(0)\n"
        "status = os.waitpid(child, 0)[1]\ngo.set()\nassert status == 0, status\n",
        tmp_path / "nobody.sock",
    )


def test_a_forked_child_closes_its_copy_of_the_socket(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        done = run(
            START + "import gc, os, time\nfrom replaywatch.probe import session\n"
            "outlet, end = session.current().outlet, time.time() + 20\n"
            "while time.time() < end and not outlet.sent:\n    probe.record_step('eager'); time.sleep(0.01)\n"
            "del outlet\nchild = os.fork()\nif not child:\n    gc.collect(); os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n",
            listener,
            None,
        )
    assert done.stderr == ""


def test_a_forked_child_keeps_the_blind_spots_of_hooks_that_are_not_in_place(tmp_path: Path) -> None:
    run(
        START + "import os\nfrom replaywatch.probe import session\nsight = session.current().sight\n"
        "sight.blind('vllm steps', 'no such class in this version')\nsight.blind('hang watch', 'a foreign stream')\n"
        "probe.record_step('full', batch=-1)\nsight.fault('graph replays', ValueError())\nchild = os.fork()\n"
        "if not child:\n    told = {spot['signal'] for spot in sight.blind_spots()}\n"
        "    assert {'vllm steps', 'graph replays'} <= told, told\n"
        "    assert not {'hang watch', 'steps of record_step'} & told, told\n    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n",
        tmp_path / "nobody.sock",
    )


def test_a_session_that_was_stopped_is_kept_by_nobody(tmp_path: Path) -> None:
    run(
        "import gc, multiprocessing.util, torch, weakref\nimport replaywatch.probe as probe\n"
        "from replaywatch.probe import session\nfound = []\nfor _ in range(3):\n    probe.start()\n"
        "    found.append(weakref.ref(session.current()))\n    probe.stop()\ngc.collect()\n"
        "assert [ref() for ref in found] == [None] * 3\ntorch.cuda.init()\n",
        tmp_path / "nobody.sock",
    )


def test_a_forked_child_that_does_nothing_sends_nothing(tmp_path: Path) -> None:
    frames = all_frames(
        START + GRAPHS + "captured().replay()\nimport os\nchild = os.fork()\nif not child:\n    os._exit(0)\n"
        "os.waitpid(child, 0)\n",
        tmp_path,
    )
    assert len(by_pid(frames)) == 1


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_never_destroys_its_parents_cuda_events(leave: str, tmp_path: Path) -> None:
    all_frames(
        START + GRAPHS + "import os, sys, time, gc\nmade = captured()\nend = time.time() + 0.5\n"
        "while time.time() < end:\n    made.replay()\n"
        f"child = os.fork()\nif not child:\n    gc.collect()\n    {leave}\n"
        "assert os.waitpid(child, 0)[1] == 0\n",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="2",
    )


def test_the_last_window_leaves_with_the_process(tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "made = captured()\nmade.replay()\n", tmp_path, REPLAYWATCH_PROBE_WINDOW_SECONDS="300"
    )
    assert window.dispatch.replays == 1


def test_a_process_without_cuda_or_graphs_has_no_thread_and_sends_nothing(tmp_path: Path) -> None:
    frames = all_frames(
        START + "import torch, threading, time\nassert threading.active_count() == 1\ntime.sleep(0.3)\n", tmp_path
    )
    assert frames == []


def test_an_eager_process_is_seen_once_cuda_starts(tmp_path: Path) -> None:
    window = seen(START + "import torch, time\ntorch.cuda.init()\ntime.sleep(0.4)\n", tmp_path)
    assert window.dispatch.replays == 0
    assert window.dispatch.captures == {}
    assert window.workload.gpu_index == 0


def test_no_agent_costs_a_counter(tmp_path: Path) -> None:
    done = run(
        START
        + GRAPHS
        + "made = captured()\nimport time\nend = time.time() + 2\nfrom replaywatch.probe import session\n"
        "outlet = session.current().outlet\n"
        "while time.time() < end and not outlet.dropped:\n    made.replay(); time.sleep(0.001)\n"
        "print(outlet.dropped > 0, outlet.sent, outlet.waiting)\n",
        tmp_path / "nobody.sock",
        REPLAYWATCH_PROBE_WINDOW_SECONDS="0.05",
    )
    assert done.stdout.split()[:2] == ["True", "0"]


def test_a_full_socket_drops_and_counts_and_never_blocks(tmp_path: Path) -> None:
    code = (
        START + GRAPHS + "made = captured()\nimport time\nfrom replaywatch.probe import session\n"
        "outlet = session.current().outlet\nend = time.time() + 10\nslowest = 0\n"
        "while time.time() < end and not outlet.dropped:\n"
        "    begin = time.perf_counter(); made.replay(); slowest = max(slowest, time.perf_counter() - begin)\n"
        "    time.sleep(0.001)\n"
        "print(outlet.sent, outlet.dropped)\nbegin = time.perf_counter(); probe.stop()\n"
        "assert time.perf_counter() - begin < 2\n"
    )
    with Listener(tmp_path / "agent.sock") as listener:
        done = run(code, listener, REPLAYWATCH_PROBE_WINDOW_SECONDS="0.05")
        sent, dropped = map(int, done.stdout.split())
        assert dropped >= 1
        assert sent == len(listener.frames())


def test_an_agent_that_comes_back_gets_what_waited(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    first = Listener(path)
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-c", START + GRAPHS + "import os, time\nmade = captured()\n"
         "for at in range(400):\n    made.replay(); time.sleep(0.005)\n"
         f"    if at == 50: open({str(ready)!r}, 'w').close()\n"],
        env=program_environment(path, "2.13"), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 20
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.01)
    before = first.frames()
    first.close()
    path.unlink()
    time.sleep(0.3)
    with Listener(path) as second:
        pump = Pump(second)
        _, errors = process.communicate(timeout=30)
        after = pump.stop()
    assert process.returncode == 0, errors
    whole = merged([decode(frame) for frame in before + after])
    assert whole.dispatch.replays == 400
    assert any(decode(frame).fingerprints and decode(frame).configs for frame in after)


def test_snapshots_of_a_dropped_frame_are_sent_again(tmp_path: Path) -> None:
    path, dropped = tmp_path / "agent.sock", tmp_path / "dropped"
    process = subprocess.Popen(
        [sys.executable, "-c", START + GRAPHS + "import pathlib, time\nfrom replaywatch.probe import session\n"
         "made, outlet, end = captured(), session.current().outlet, time.time() + 20\n"
         "while time.time() < end and not outlet.sent:\n    made.replay(); time.sleep(0.01)\n"
         f"    if outlet.dropped > 1: pathlib.Path({str(dropped)!r}).touch()\n"],
        env=program_environment(path, "2.13", REPLAYWATCH_PROBE_WINDOW_SECONDS="0.05"),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert until(dropped.exists, 15)
    with Listener(path) as listener:
        pump = Pump(listener)
        _, errors = process.communicate(timeout=30)
        batches = [decode(frame) for frame in pump.stop()]
    assert process.returncode == 0, errors
    known = {i for b in batches for i in b.fingerprints}
    assert {b.windows[0].fingerprint_id for b in batches} == known


@pytest.mark.parametrize("torch", GENERATIONS)
def test_other_tools_patches_are_chained_in_any_order(torch: str, tmp_path: Path) -> None:
    window = seen(
        """
import torch
calls = []
def patch(name):
    before = torch.cuda.CUDAGraph.replay
    def replay(self, *args, **kwargs):
        calls.append(name)
        return before(self, *args, **kwargs)
    torch.cuda.CUDAGraph.replay = replay
    return replay
patch("before")
"""
        + START
        + 'outer = patch("after")\n'
        + GRAPHS
        + """
made = captured()
for _ in range(5):
    made.replay()
assert calls == ["after", "before"] * 5, calls
probe.stop()
assert torch.cuda.CUDAGraph.replay is outer
made.replay()
assert calls[-2:] == ["after", "before"] and len(calls) == 12
probe.start()
made.replay()
assert calls[-2:] == ["after", "before"] and len(calls) == 14
""",
        tmp_path,
        torch,
    )
    assert window.dispatch.replays == 6


@pytest.mark.parametrize("torch", GENERATIONS)
def test_stop_puts_everything_back(torch: str, tmp_path: Path) -> None:
    run(
        """
import sys, torch, torch.autograd.profiler, torch._inductor.cudagraph_trees, torch._inductor.compile_fx
import torch._inductor.output_code
def functions():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("torch"):
            for key, value in vars(module).items():
                if callable(value) and key != "device":
                    found[name, key] = value
                    if isinstance(value, type) and value.__module__.startswith("torch"):
                        found.update({(name, key, k): v for k, v in vars(value).items() if callable(v)})
    return found
before, path = functions(), list(sys.meta_path)
import replaywatch.probe as probe
probe.start()
changed = functions()
assert {key for key in before if before[key] is not changed[key]}
hooks = getattr(torch.cuda.graphs, "_global_capture_start_hooks", None)
probe.stop()
after = functions()
assert {key for key in before if before[key] is not after[key]} == set()
assert sys.meta_path == path
assert not hooks
""",
        tmp_path / "nobody.sock",
        torch,
    )


def test_a_fault_of_the_probe_switches_the_hook_off_with_one_line(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        done = subprocess.run(
            [sys.executable, "-c", START + GRAPHS + """
from replaywatch.probe import session
made = captured()
made.replay()
session.current().ledger.slots[id(made)].replays = None
for _ in range(5):
    made.replay()
session.current().ledger.slots[id(made)].replays = 1
"""], env=program_environment(listener, "2.13"), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        window = merged(listener.batches(1))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert window.cost is not None
    assert window.cost.errors == 1
    assert "graph replays" in {b.signal for b in window.blind}


COLLECTING = """
import gc, signal, threading
from torch import device
from replaywatch.probe import ledger, pools, sight
signal.alarm(20)
gc.disable()
held = []
def reset_in_vain(graph):
    device.fail["reset"] = RuntimeError("CUDA error: driver shutting down")
    try:
        graph.reset()
    except RuntimeError:
        pass
class Runner:
    def __init__(self):
        self.graph, self.me = torch.cuda.CUDAGraph(), self
        held.append(self.graph)
    def __del__(self):
        reset_in_vain(self.graph)
        self.graph.reset()
def runner():
    made = Runner()
    with torch.cuda.graph(made.graph):
        pass
def collecting(before):
    def act(*args, **kwargs):
        gc.collect()
        return before(*args, **kwargs)
    return act
class Limit(int):
    __le__ = collecting(int.__le__)
"""


@pytest.mark.parametrize(
    "place",
    [
        "ledger.add_count = collecting(ledger.add_count)",
        "ledger.GraphSlot = collecting(ledger.GraphSlot)",
        "pools.Pool.drop = collecting(pools.Pool.drop)",
        "pools.Pool.by_owner = collecting(pools.Pool.by_owner)",
        "sight.MAX_OBSERVED = Limit(256)",
        "threading.Thread.__init__ = collecting(threading.Thread.__init__)",
    ],
)
def test_a_finalizer_may_reset_its_graph_wherever_the_collector_runs_it(place: str, tmp_path: Path) -> None:
    window = seen(
        "import torch\n" + START + COLLECTING + "from replaywatch.probe import session\n"
        f"{place}\nRunner()\ntorch.cuda.init()\nmade = torch.cuda.CUDAGraph()\nrunner()\n"
        "with torch.cuda.graph(made):\n    runner()\n"
        "reset_in_vain(made)\nrunner()\nmade.reset()\nrunner()\nsession.current().ledger.take()\nrunner()\n"
        "threads = [t for t in threading.enumerate() if t.name == 'replaywatch']\nassert len(threads) == 1, threads\n",
        tmp_path,
    )
    assert not {spot.signal for spot in window.blind} & {"graph resets", "graph captures", "helper thread"}


def test_starting_twice_hooks_once(tmp_path: Path) -> None:
    window = seen(START + START + GRAPHS + "captured().replay()\n" + START, tmp_path)
    assert window.dispatch.replays == 1


def test_bad_options_are_named_and_do_not_stop_the_probe(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        done = run(START + GRAPHS + "captured().replay()\n", listener, REPLAYWATCH_PROBE_TIME_ONE_IN="often")
        assert merged(listener.batches(1)).dispatch.replays == 1
    assert "REPLAYWATCH_PROBE_TIME_ONE_IN cannot be 'often'; give a int from 0" in done.stderr


def test_frames_hold_neither_code_nor_texts_of_the_process(tmp_path: Path) -> None:
    message = (
        "skipping cudagraphs due to mutated inputs (3 instances). Found from : \n"
        '   File "/home/someone/secret_model.py", line 12, in forward\n    prompt = "my secret"\n'
    )
    frames = all_frames(
        START + GRAPHS + "import torch._inductor.cudagraph_utils as utils\n"
        f"utils.log_cudagraph_skip_and_bump_counter({message!r})\ncaptured().replay()\n",
        tmp_path,
    )
    text = b"".join(frames).decode()
    assert "secret_model.py:12" in text
    assert "my secret" not in text
    assert "/home/someone" not in text


def test_the_probe_creates_no_cuda_context(tmp_path: Path) -> None:
    run(
        START + "import torch, time\nfrom replaywatch.probe import session\n"
        "session.current().keeper.begin(); time.sleep(0.4)\nassert not torch.cuda.is_initialized()\n",
        tmp_path / "nobody.sock",
    )


def test_bad_turns_of_the_helper_thread_are_one_line_and_windows_go_on(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        pump = Pump(listener)
        done = run(
            START + GRAPHS + "from replaywatch.probe import keeper, session\nimport time\nmade = captured()\n"
            "session, bad = session.current(), 0\n"
            "def sometimes(now_ns):\n    global bad\n    bad += 1\n    if bad % 2: raise ZeroDivisionError\n"
            "session.timer.poll = sometimes\nmade.replay()\nend = time.time() + 20\n"
            "while time.time() < end and bad < 3 * keeper.MAX_FAULTS: time.sleep(0.01)\n"
            "del session.timer.poll\nmade.replay(); time.sleep(0.3)\nassert session.running\n",
            listener,
            REPLAYWATCH_PROBE_WINDOW_SECONDS="0.05",
        )
        batches = [decode(frame) for frame in pump.stop()]
    assert done.stderr.count("\n") == 1, done.stderr
    assert merged(batches).dispatch.replays == 2
    told = [w for b in batches for w in b.windows if w.cost is not None and w.cost.errors]
    assert sum(w.cost.errors for w in told if w.cost) >= 30
    assert all("helper thread" in {spot.signal for spot in w.blind} for w in told)
    assert "helper thread" not in {spot.signal for spot in batches[-1].windows[0].blind}


@pytest.mark.parametrize("broken", ["session.timer.poll", "session.ledger.take", "session.graph_patches.practice"])
def test_a_helper_thread_that_only_fails_takes_the_hooks_off_and_says_so(broken: str, tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        pump = Pump(listener)
        done = run(
            "import torch\nbefore = torch.cuda.CUDAGraph.replay\n" + START + "import threading, time\n"
            "from replaywatch.probe import session as module\nsession = module.current()\n"
            "def fails(*args, **kwargs): raise ZeroDivisionError('no such thing')\n"
            f"{broken} = fails\nsession.timer.poll = fails\n" + GRAPHS + "captured().replay()\n"
            "end = time.time() + 20\nwhile time.time() < end and threading.active_count() > 1: time.sleep(0.01)\n"
            "assert torch.cuda.CUDAGraph.replay is before\nassert module.current() is None\n"
            "captured().replay(); probe.record_step('eager')\n"
            "assert module.start() and module.current() is not session\n",
            listener,
            REPLAYWATCH_PROBE_WINDOW_SECONDS="0.05",
        )
        windows = [w for frame in pump.stop() for w in decode(frame).windows]
    assert len(done.stderr.splitlines()) == 2, done.stderr
    assert "the probe ends" in done.stderr
    ends = [w for w in windows if any(spot.signal == "probe" for spot in w.blind)]
    assert len(ends) == 1
    assert ends[0].cost is not None
    assert ends[0].cost.errors >= 20
