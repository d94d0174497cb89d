"""Harm, looked for on purpose: a decode loop under the probe for as long as asked, while everything around it fails.

    python3 tests/gpu/soak.py --seconds 620 --json out.json

In the watched process: replays and eager steps whose tokens must equal those of a run without the probe, bit for bit;
torch.profiler at random moments, whose kernels must be complete each time; new captures, captures that fail, destroyed
graphs, forks, subprocesses, a second CUPTI user. Around it: an agent that is killed, restarted, stopped (its socket
fills up), deprived of its folder, and whose spool lies on a full disk.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DENSE = {
    "REPLAYWATCH_PROBE_KERNELS": "1",
    "REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS": "0.5",
    "REPLAYWATCH_PROBE_TRACE_MS": "50",
    "REPLAYWATCH_PROBE_BUDGET_RATIO": "0.1",
    "REPLAYWATCH_PROBE_TIME_ONE_IN": "8",
    "REPLAYWATCH_PROBE_WINDOW_SECONDS": "1",
}
HANG_S = 20.0
SEEN = "replays that the probe saw"


class Victim:
    """The watched program: does random things and checks that nothing changes what it computes."""

    def __init__(self, seed: int) -> None:
        import torch
        from decoder import DecodeLoop

        self.torch, self.random = torch, random.Random(seed)
        self.loop = DecodeLoop(4, layers=8)
        self.graph = self.loop.capture()
        self.first = self.loop.tokens.clone()
        self.counts: dict[str, int] = {}
        self.expected = self._run(self.loop.eager), self._run(self.graph.replay)

    def _run(self, step: Callable[[], None], steps: int = 6) -> str:
        """Tokens after some steps from the same start, and the sum of the cache they wrote."""
        self.loop.tokens.copy_(self.first)
        for _ in range(steps):
            step()
        return f"{self.loop.tokens.tolist()} {self.loop.keys.double().sum().item()!r}"

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    def check(self) -> None:
        """Both forms still give what they gave before the probe."""
        for name, step, expected in (("eager", self.loop.eager, self.expected[0]),
                                     ("replay", self.graph.replay, self.expected[1])):  # fmt: skip
            self.count("checks")
            if self._run(step) != expected:
                self.count(f"wrong {name}")

    def profile(self) -> None:
        """A profile must hold the same kernels every time."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for _ in range(3):
                self.loop.eager()
                self.graph.replay()
            self.torch.cuda.synchronize()
        device = self.torch.autograd.DeviceType.CUDA
        seen = sum(e.device_type == device and "Mem" not in e.name for e in found.events())
        self.count("profiles")
        self.count(f"profile of {seen} kernels")

    def capture(self) -> None:
        """A new graph that is replayed a few times and dropped."""
        graph = self.loop.capture()
        for _ in range(self.random.randint(1, 5)):
            graph.replay()
        self.torch.cuda.synchronize()
        self.count("captures")

    def fail_capture(self) -> None:
        """A host read inside a capture; the error must reach the program, and the next capture must work."""
        graph = self.torch.cuda.CUDAGraph()
        try:
            with self.torch.cuda.graph(graph):
                self.loop.eager()
                self.loop.tokens.tolist()
            self.count("captures that should have failed")
        except RuntimeError:
            self.count("failed captures")

    def fork(self) -> None:
        """A child that does nothing with CUDA and leaves through the interpreter's exit."""
        child = os.fork()
        if child == 0:
            time.sleep(0.05)
            os._exit(7)
        _, status = os.waitpid(child, 0)
        self.count("forks" if os.waitstatus_to_exitcode(status) == 7 else "lost forks")

    def spawn(self) -> None:
        """A Python child of its own, which the probe enters as well."""
        done = subprocess.run([sys.executable, "-c", "print(41 + 1)"], capture_output=True, text=True, timeout=30,
                              check=False)  # fmt: skip
        self.count("children" if done.stdout == "42\n" else "lost children")

    def other_cupti_user(self) -> None:
        """Somebody else takes the buffer callbacks and switches our kind of record off, as other tools do."""
        cupti = next((p for p in _mapped("libcupti.so") if p), None)
        if cupti is None:
            return
        library = ctypes.CDLL(cupti)
        library.cuptiActivityEnable(2)  # memory sets
        self._run(self.graph.replay, 2)
        library.cuptiActivityDisable(2)
        library.cuptiActivityDisable(10)  # concurrent kernels, ours
        self.count("other CUPTI user")

    def work(self, seconds: float, profiles: str) -> None:
        """Random things until the time is over; a line a second says that it lives.

        `profiles`: random, at any moment, after the first of which there are no windows; or last, a single one after
        windows all the time.
        """
        things = [self.check] * 8 + [self.capture] * 2 + [self.fail_capture, self.fork, self.spawn,
                                                         self.other_cupti_user]  # fmt: skip
        things += [self.profile] * (profiles == "random")
        end_s, told_s = time.monotonic() + seconds, 0.0
        while time.monotonic() < end_s:
            self.random.choice(things)()
            self.burst()
            if time.monotonic() - told_s > 1:
                told_s = time.monotonic()
                print(json.dumps({"alive": self.counts}), flush=True)
        self.check()
        self.profile()
        self.counts[SEEN] = _seen_by_the_probe()
        print(json.dumps({"end": self.counts}), flush=True)

    def burst(self) -> None:
        """Plain decoding for a moment."""
        step = self.random.choice((self.loop.eager, self.graph.replay))
        end_s = time.monotonic() + self.random.uniform(0.02, 0.4)
        while time.monotonic() < end_s:
            step()
        self.torch.cuda.synchronize()


def _seen_by_the_probe() -> int:
    """Replays that the probe of this process counted on the graphs that are alive; 0 where there is none."""
    from replaywatch.probe.session import current

    session = current()
    return sum(slot.replays for slot in session.ledger.slots.values()) if session is not None else 0


def _mapped(name: str) -> list[str]:
    """Paths of loaded libraries whose file name begins so."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in lines if "/" in line}
    return sorted(p for p in paths if Path(p).name.startswith(name))


class Neighbours:
    """The agent and what happens to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.socket = folder / "run" / "agent.sock"
        self.spool = folder / "spool"
        self.spool.mkdir()
        self.counts: dict[str, int] = {}
        self.is_small = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(self.spool)],
                                       check=False).returncode == 0  # fmt: skip
        self.agent = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "replaywatch.cli.main", "agent", "--socket", str(self.socket), "--spool-dir",
                   str(self.spool), "--listen", "off", "--collector-url", "http://127.0.0.1:9"]  # fmt: skip
        log = (self.folder / "agent.log").open("ab")
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "REPLAYWATCH_PROBE": "0"})

    def disturb(self) -> None:
        """One misfortune."""
        what = self.random.choice(("kill", "stop", "remove folder", "leave alone"))
        self.counts[what] = self.counts.get(what, 0) + 1
        if what == "kill":
            self.agent.kill()
            self.agent.wait()
            time.sleep(self.random.uniform(0, 3))
            self.agent = self._start()
        elif what == "stop":
            self.agent.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(1, 4))
            self.agent.send_signal(signal.SIGCONT)
        elif what == "remove folder":
            shutil.rmtree(self.socket.parent, ignore_errors=True)
            self.agent.terminate()
            self.agent.wait()
            self.agent = self._start()

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.agent.send_signal(signal.SIGCONT)
        self.agent.terminate()
        self.agent.wait()
        if self.is_small:
            subprocess.run(["umount", str(self.spool)], check=False)


def watch(seconds: float, seed: int, folder: Path, with_probe: bool, profiles: str) -> dict[str, Any]:
    """Run the victim among its neighbours, under the probe or without it; what came of it."""
    neighbours = Neighbours(folder, seed)
    program = [sys.executable, str(Path(__file__)), "--victim", "--seconds", str(seconds), "--seed", str(seed),
               "--profiles", profiles]  # fmt: skip
    command = [sys.executable, "-m", "replaywatch.cli.main", "run", "--", *program] if with_probe else program
    environment = {**os.environ, **DENSE, "REPLAYWATCH_PROBE_SOCKET": str(neighbours.socket)}
    errors = (folder / "victim.err").open("wb")
    victim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
    hangs, last = _follow(victim, neighbours)
    status = victim.wait()
    neighbours.end()
    said = json.loads(last) if last.startswith("{") else {}
    return {
        "with_probe": with_probe,
        "profiles": profiles,
        "exit_status": status,
        "hangs": hangs,
        "finished": "end" in said,
        "victim": said.get("end") or said,
        "neighbours": neighbours.counts,
        "spool_on_full_disk": neighbours.is_small,
        "victim_errors": (folder / "victim.err").read_text(errors="replace").replace(f"{ROOT}/", "")[:3000],
    }


def _follow(victim: subprocess.Popen[bytes], neighbours: Neighbours) -> tuple[int, str]:
    """Hangs, and the last line that the victim said; something befalls the neighbours now and then."""
    last, heard_s = "", time.monotonic()
    assert victim.stdout is not None
    while True:
        if select.select([victim.stdout], [], [], 1.0)[0]:
            line = victim.stdout.readline()
            if not line:
                return 0, last
            last, heard_s = line.decode(), time.monotonic()
        elif time.monotonic() - heard_s > HANG_S + 60 * (not last):
            victim.kill()
            return 1, last
        if neighbours.random.random() < 0.2:
            neighbours.disturb()


def verdict(result: dict[str, Any], alone: dict[str, Any] | None) -> list[str]:
    """What is wrong. A profile is complete when it holds as many kernels as profiles hold without the probe."""
    wrong = [k for k in result["victim"] if k.startswith(("wrong", "lost", "captures that should"))]
    if result["exit_status"] or result["hangs"] or not result["finished"]:
        wrong.append("the process did not end well")
    if alone is not None:
        if not result["victim"].get(SEEN):
            wrong.append("the probe saw nothing of it")
        seen, expected = _profiles(result), _profiles(alone)
        wrong += [f"{n} profiles of {kernels} kernels" for kernels, n in seen.items() if kernels not in expected]
    return wrong


def _profiles(result: dict[str, Any]) -> dict[str, int]:
    return {k.split()[2]: n for k, n in result["victim"].items() if k.startswith("profile of")}


def main() -> int:
    """Parent or victim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=620.0)
    parser.add_argument("--alone-seconds", type=float, default=60.0, help="the same without the probe, before")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profiles", choices=("random", "last"), default="random", help="when torch.profiler runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--victim", action="store_true")
    options = parser.parse_args()
    if options.victim:
        Victim(options.seed).work(options.seconds, options.profiles)
        return 0
    runs = []
    for with_probe, seconds in ((False, options.alone_seconds), (True, options.seconds)):
        begin_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            runs.append(watch(seconds, options.seed, Path(folder), with_probe, options.profiles))
        runs[-1]["seconds"] = round(time.monotonic() - begin_s, 1)
        runs[-1]["wrong"] = verdict(runs[-1], runs[0] if with_probe else None)
        if options.json:
            options.json.write_text(json.dumps(runs, indent=1) + "\n")
    print(json.dumps(runs, indent=1))
    return 1 if runs[-1]["wrong"] else 0


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]
    sys.exit(main())
