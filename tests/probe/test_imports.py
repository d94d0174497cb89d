"""Hooks appear with the modules they belong to, whatever else hooks imports."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from probe.harness import GENERATIONS, ROOT, pythons, run
from replaywatch.probe import placing
from replaywatch.probe.engines import registry
from replaywatch.probe.engines.port import Port
from replaywatch.probe.session import Session
from replaywatch.probe.settings import settle

NOBODY = Path("/nonexistent/agent.sock")


def test_starting_imports_no_torch_and_nothing_third_party(tmp_path: Path) -> None:
    run(
        "import sys; before = set(sys.modules)\nimport replaywatch.probe as probe; probe.start()\n"
        "new = {n.split('.')[0] for n in set(sys.modules) - before}\n"
        "assert new <= set(sys.stdlib_module_names) | {'replaywatch'}, new\nassert 'dataclasses' not in new\n",
        NOBODY,
        torch=None,
    )


@pytest.mark.parametrize("torch", GENERATIONS)
def test_the_modules_keep_their_own_loader_and_can_be_reloaded(torch: str) -> None:
    run(
        """
import replaywatch.probe as probe; probe.start()
import importlib, inspect, torch.cuda.graphs as graphs
assert type(graphs.__loader__).__name__ == "SourceFileLoader" and graphs.__spec__.loader is graphs.__loader__
assert "class CUDAGraph" in inspect.getsource(graphs)
first = graphs.CUDAGraph.replay
assert first.__wrapped__ and first.__name__ == "replay"
importlib.reload(graphs)
assert graphs.CUDAGraph.replay is not first and graphs.CUDAGraph.replay.__wrapped__
assert importlib.util.find_spec("torch.cuda.graphs") is not None
""",
        NOBODY,
        torch,
    )


@pytest.mark.parametrize("other", ["before", "after"])
def test_other_import_hooks_see_the_same_modules(other: str) -> None:
    run(
        f"""
import sys, importlib.machinery
seen = []
class Wrapping:  # as wrapt and ddtrace do: find the spec, wrap its loader
    busy = False
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("torch") or Wrapping.busy:
            return None
        Wrapping.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            Wrapping.busy = False
        inner = spec.loader.exec_module
        class Loader:
            def create_module(self, spec):
                return None
            def exec_module(self, module):
                inner(module)
                seen.append(module.__name__)
        spec.loader = Loader()
        return spec
import importlib.util
import replaywatch.probe as probe
if {other!r} == "before":
    sys.meta_path.insert(0, Wrapping())
probe.start()
if {other!r} == "after":
    sys.meta_path.insert(0, Wrapping())
import torch.cuda.graphs
assert "torch.cuda.graphs" in seen, seen
assert torch.cuda.graphs.CUDAGraph.replay.__wrapped__
""",
        NOBODY,
    )


def test_an_import_that_fails_fails_as_ever(tmp_path: Path) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken on purpose')\n")
    run(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport replaywatch.probe as probe; probe.start()\n"
        "try:\n    import vllm\nexcept RuntimeError as error:\n    assert str(error) == 'broken on purpose'\n"
        "else:\n    raise AssertionError\ntry:\n    import sglang\nexcept ModuleNotFoundError:\n    pass\n",
        NOBODY,
        torch=None,
    )


def test_namespace_packages_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "vllm" / "part").mkdir(parents=True)
    run(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport replaywatch.probe as probe; probe.start()\n"
        "import vllm\nassert vllm.__file__ is None\n",
        NOBODY,
        torch=None,
    )


def test_a_stop_during_an_import_leaves_no_hook_behind() -> None:
    run(
        """
import importlib.machinery
import replaywatch.probe as probe
from replaywatch.probe.session import current
probe.start()
session, execute = current(), importlib.machinery.SourceFileLoader.exec_module
def stopping(loader, module):
    if module.__name__ == "torch.cuda.graphs":
        probe.stop()
    execute(loader, module)
importlib.machinery.SourceFileLoader.exec_module = stopping
import torch.cuda.graphs
assert not hasattr(torch.cuda.CUDAGraph.replay, "__wrapped__")
session.imports.on("torch.cuda.graphs", lambda module: 1 / 0)
session.imports.catch("torch.cuda.graphs", lambda module: 1 / 0)
assert not session.sight.errors
""",
        NOBODY,
    )


def test_engines_that_two_threads_import_get_their_adapters_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session, attached = Session(settle({}, {})), []

    def attach(of: Session) -> Port:
        attached.append(of)
        if len(attached) == 1:
            other = threading.Thread(target=placing.attach_adapters, args=(session,))
            other.start()
            other.join(5)
            assert not other.is_alive()
        return Port(of.sight, of.imports, of.steps, of.ledger)

    monkeypatch.setattr(registry, "attach", attach)
    placing.attach_adapters(session)
    assert attached == [session]


def test_a_child_forked_while_a_thread_attaches_the_adapters_says_that_it_has_none() -> None:
    session = Session(settle({}, {}))
    session.running = True
    session.after_fork()
    assert "engine adapters" not in {spot["signal"] for spot in session.sight.blind_spots()}
    with session.attaching:
        session.after_fork()
        placing.attach_adapters(session)
    assert session.port is None
    assert "engine adapters" in {spot["signal"] for spot in session.sight.blind_spots()}


@pytest.mark.parametrize("python", pythons() or [pytest.param("", marks=pytest.mark.skip("no other interpreter"))])
def test_import_and_start_stay_within_time_and_memory(python: str, tmp_path: Path) -> None:
    """Budget: 30 ms and 16 MB. The bound is wider, in processor time: test machines are shared."""
    code = (
        "import time\ndef rss(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "before = rss()\nbegin = time.process_time()\nimport replaywatch.probe as probe\nprobe.start()\n"
        "took = time.process_time() - begin\nprint(took * 1000, (rss() - before) / 1e6)\n"
    )
    environment = {"PYTHONPATH": str(ROOT / "agent"), "PYTHONPYCACHEPREFIX": str(tmp_path), "PATH": "/usr/bin:/bin"}
    runs = []
    for _ in range(6):
        done = subprocess.run(
            [python or sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        runs.append([float(word) for word in done.stdout.split()])
    assert min(took for took, _ in runs[1:]) < 90
    assert 0 < min(memory for _, memory in runs[1:]) < 16
