"""The agent as a sidecar: without root, and without sight of the processes it hears."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.frames import Probe, frame, wait_until, without_snapshots
from agent.receiver import Receiver

ROOT = Path(__file__).parents[2]
AGENT = """
import os, sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import run
if sys.argv[5] != "same":
    # The interpreter may lie in a folder of root's: load beforehand what is loaded late.
    import encodings.idna, httpx, httpcore, anyio; httpx.Client().close()
    os.setgroups([]); os.setgid(int(sys.argv[5])); os.setuid(int(sys.argv[5]))
run(AgentOptions(socket=Path(sys.argv[2]), spool_dir=Path(sys.argv[3]), collector_url=sys.argv[4], listen="off",
    batch_seconds=0.1, allow_uids="any"))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or make a namespace")


def arguments(folder: Path, url: str, uid: str = "same") -> list[str]:
    return [sys.executable, "-c", AGENT, str(ROOT / "agent"), str(folder / "a.sock"), str(folder / "spool"), url, uid]


def can_unshare() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-pf", "true"], capture_output=True).returncode == 0


@needs_root
def test_it_runs_without_root_in_a_folder_that_others_own(short_path: Path) -> None:
    short_path.chmod(0o777)  # as Kubernetes mounts an emptyDir
    with Receiver() as receiver:
        agent = subprocess.Popen(arguments(short_path, receiver.url, "65534"))
        wait_until((short_path / "a.sock").exists, 30)
        assert (short_path / "a.sock").stat().st_uid == 65534
        with Probe(short_path / "a.sock") as probe:
            probe.send(frame("k"))
        wait_until(lambda: len(receiver.windows) == 1)
        agent.terminate()
        assert agent.wait(5) == 0


@needs_root
def test_processes_that_it_cannot_see_are_told_apart_by_what_they_say(short_path: Path) -> None:
    if not can_unshare():
        pytest.skip("this kernel gives no PID namespace here")
    with Receiver() as receiver:
        agent = subprocess.Popen(
            ["unshare", "-pf", "--kill-child", "--mount-proc", *arguments(short_path, receiver.url)]
        )
        wait_until((short_path / "a.sock").exists, 30)
        with Probe(short_path / "a.sock") as probe:
            for n, pid in enumerate((1, 1, 77)):
                probe.send(frame(f"{pid}-{'ab' if n != 1 else 'cd'}-0", without_snapshots(n, pid=pid)))
        wait_until(lambda: len(receiver.windows) == 3)
        assert [w.workload.pid for w in receiver.windows] == [1, 1, 77]
        # The second process of number 1 started at another time: it replaced the first in the same container.
        assert [[o.kind for o in w.observations] for w in receiver.windows] == [[], ["process_restarted"], []]
        agent.kill()  # unshare leaves SIGTERM unheard, and takes its child along when it dies
        agent.wait(5)


def test_importing_the_agents_stages_loads_no_parser_and_no_database() -> None:
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "import replaywatch.agent.serve\n"
        "print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ROOT / "agent")], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"torch", "sqlalchemy", "starlette", "msgspec", "pynvml"}
