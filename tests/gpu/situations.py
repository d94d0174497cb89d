"""Faults that begin in a live process, and health, recorded as the agent ships them: probe, socket, agent, NVML, HTTP.

    python3 tests/gpu/situations.py --out OUT [--only contention ...] [--calm 35] [--fault 16]      (one GPU, torch)

Each situation is a process of its own under the probe, with windows of half a second; the fault begins after a calm
stretch. Truth is what the process itself timed before and after, and the moment at which the fault began. Writes into
OUT: truth.json, and situations.tar with NAME.jsonl.gz (batches in the wire form, one a line, without the host's name).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "tests/gpu", "tests/corpus")]

LADDER = (1, 2, 4, 8, 16)
PROBE = {
    "REPLAYWATCH_PROBE_KERNELS": "1",
    "REPLAYWATCH_PROBE_WINDOW_SECONDS": "0.5", "REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS": "4",
    "REPLAYWATCH_PROBE_MODEL_NAME": "decoder", "PYTHONUNBUFFERED": "1",
}  # fmt: skip


class Player:
    """Steps of one process, timed; a situation switches `mode` when its fault begins."""

    def __init__(self, seconds: float, fault_after_s: float) -> None:
        self.seconds, self.fault_after_s = seconds, fault_after_s
        self.times: dict[str, list[float]] = {"before": [], "after": []}
        self.fault_ns: int | None = None

    def loop(self, step: Callable[[float, bool], None], fault: Callable[[], None] | None = None) -> None:
        """Run steps until the time is over; `step` gets the second and whether the fault has begun."""
        begin = last = time.perf_counter()
        while (second := last - begin) < self.seconds:
            is_faulty = second >= self.fault_after_s
            if is_faulty and self.fault_ns is None:
                self.fault_ns = time.time_ns()
                print("FAULT", flush=True)
                if fault is not None:
                    fault()
                last = time.perf_counter()
            step(second, is_faulty)
            now = time.perf_counter()
            self.times["after" if is_faulty else "before"].append(now - last)
            last = now

    def told(self, **more: Any) -> dict[str, Any]:
        """What was timed, in milliseconds."""
        medians = {f"{k}_ms": statistics.median(v) * 1e3 if v else None for k, v in self.times.items()}
        means = {f"{k}_mean_ms": statistics.fmean(v) * 1e3 if v else None for k, v in self.times.items()}
        return {"fault_ns": self.fault_ns, **medians, **means, **more}


def decoders(sizes: tuple[int, ...] = LADDER) -> dict[int, Any]:
    """Decode loops of several batches."""
    from decoder import DecodeLoop

    return {size: DecodeLoop(size, layers=12) for size in sizes}


def swing(second: float) -> int:
    """A batch that wanders between 1 and 16."""
    phase = (second % 20) / 20
    return max(1, round(16 * (1 - abs(2 * phase - 1))))


def replaying(player: Player, disturb: Callable[[], None] | None = None, pace_s: float = 0.0) -> dict[str, Any]:
    """A service on graphs whose load swings; `disturb` runs before every step once the fault has begun."""
    from replaywatch.probe import record_step

    loops = decoders()
    graphs = {size: loop.capture() for size, loop in loops.items()}

    def step(second: float, is_faulty: bool) -> None:
        batch = swing(second)
        size = next(s for s in LADDER if s >= batch)
        if is_faulty and disturb is not None:
            disturb()
        graphs[size].replay()
        record_step("full", batch=batch, real_tokens=batch, padded_tokens=size)
        loops[size].tokens.tolist()
        if pace_s:
            time.sleep(pace_s)

    player.loop(step)
    return player.told()


def healthy(player: Player) -> dict[str, Any]:
    """Nothing happens."""
    return replaying(player)


def sparse(player: Player) -> dict[str, Any]:
    """A request of twenty steps, then a pause: low traffic, nothing wrong."""
    from replaywatch.probe import record_step

    loop = decoders((1,))[1]
    graph = loop.capture()

    def request(_second: float, _faulty: bool) -> None:
        for _ in range(20):
            graph.replay()
            record_step("full", batch=1, real_tokens=1, padded_tokens=1)
            loop.tokens.tolist()
        time.sleep(0.15)

    player.loop(request)
    return player.told()


def host_busy(player: Player) -> dict[str, Any]:
    """The host works three milliseconds more before every launch."""

    def work() -> None:
        end = time.perf_counter() + 0.003
        while time.perf_counter() < end:
            pass

    return replaying(player, work)


def graphs_lost(player: Player) -> dict[str, Any]:
    """The same steps, eager from some moment on."""
    from replaywatch.probe import record_step

    loops = decoders()
    graphs = {size: loop.capture() for size, loop in loops.items()}

    def step(second: float, is_faulty: bool) -> None:
        batch = swing(second)
        size = next(s for s in LADDER if s >= batch)
        if is_faulty:
            loops[size].eager()
            record_step("eager", batch=batch, real_tokens=batch, padded_tokens=size, reason="mode_none")
        else:
            graphs[size].replay()
            record_step("full", batch=batch, real_tokens=batch, padded_tokens=size)
        loops[size].tokens.tolist()

    player.loop(step)
    return player.told()


def both_ways(player: Player) -> dict[str, Any]:
    """Small products on four streams, launched one by one, and as a graph that was captured on one: which is faster?"""
    import torch

    from replaywatch.probe import record_step

    many = [torch.cuda.Stream() for _ in range(4)]
    left = [torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    outs = [torch.empty_like(x) for x in left]

    def part(at: int) -> None:
        for _ in range(24):
            torch.mm(left[at], left[at], out=outs[at])

    def spread() -> None:
        main = torch.cuda.current_stream()
        for at, stream in enumerate(many):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                part(at)
            main.wait_stream(stream)

    def chained() -> None:
        for at in range(4):
            part(at)

    chained()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chained()
    times: dict[str, list[float]] = {"eager": [], "full": []}
    count = 0

    def step(_second: float, _faulty: bool) -> None:
        nonlocal count
        mode = "full" if (count // 25) % 2 else "eager"
        count += 1
        begin = time.perf_counter()
        graph.replay() if mode == "full" else spread()
        record_step(mode, batch=8, real_tokens=8, padded_tokens=8, reason=None if mode == "full" else "other")
        torch.cuda.synchronize()
        times[mode].append(time.perf_counter() - begin)

    player.loop(step)
    return player.told(**{f"{k}_ms": statistics.median(v) * 1e3 for k, v in times.items()})


def compiled_default(player: Player) -> dict[str, Any]:
    """torch.compile in its default mode, which uses no graphs; afterwards the same with graphs, for the truth."""
    import torch

    layers = [torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) * 0.04 for _ in range(48)]
    x = torch.randn(8, 512, device="cuda", dtype=torch.bfloat16)

    def forward(x: Any) -> Any:
        for weight in layers:
            x = torch.nn.functional.layer_norm(torch.tanh(x @ weight), (512,))
        return x

    plain = torch.compile(forward)
    with torch.no_grad():
        for _ in range(5):
            plain(x)
        torch.cuda.synchronize()

        def step(_second: float, _faulty: bool) -> None:
            plain(x)
            torch.cuda.synchronize()

        player.loop(step)
        from replaywatch.probe import stop

        stop()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plain(x)
        pairs = []
        for _ in range(10):
            took = []
            for run in (lambda: plain(x), graph.replay):
                begin = time.perf_counter()
                for _ in range(60):
                    run()
                    torch.cuda.synchronize()
                took.append((time.perf_counter() - begin) / 60 * 1e3)
            pairs.append(took)
    eager_ms, graph_ms = (statistics.median(p[at] for p in pairs) for at in (0, 1))
    return player.told(eager_ms=eager_ms, graph_ms=graph_ms, rho=1 - graph_ms / eager_ms)


def neighbour(player: Player) -> dict[str, Any]:
    """Another process: large matrix products, one after the other."""
    import torch

    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def step(_second: float, _faulty: bool) -> None:
        for _ in range(20):
            torch.mm(x, x, out=y)
        torch.cuda.synchronize()

    player.loop(step)
    return player.told()


@dataclass(frozen=True)
class Situation:
    """What a process plays, what befalls it from outside, and what should be said of it."""

    play: Callable[[Player], dict[str, Any]]
    expected: tuple[str, ...] = ()
    is_sudden: bool = False
    from_outside: str | None = None


SITUATIONS = {
    "healthy": Situation(healthy),
    "sparse": Situation(sparse),
    "contention": Situation(healthy, ("sudden", "contention"), True, "neighbour"),
    "host_stopped": Situation(healthy, ("sudden",), True, "stop"),
    "host_busy": Situation(host_busy, ("sudden", "replay_gap"), True),
    "graphs_lost": Situation(graphs_lost, ("sudden", "disabled"), True),
    "both_ways": Situation(both_ways),
    "compiled_default": Situation(compiled_default, ("disabled", "compile_mode")),
}
PLAYS = {name: s.play for name, s in SITUATIONS.items()} | {"neighbour": neighbour}


class Sink:
    """The collector's end: keeps the batches that the agent ships."""

    def __init__(self) -> None:
        bodies: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bodies.append(gzip.decompress(body))
                answer = b'{"duplicate": false}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *about: object) -> None:
                """Quiet."""

        self.bodies = bodies
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def outside(what: str, victim: subprocess.Popen[str], command: list[str], seconds: float) -> None:
    """Do to a process what the situation wants, for some seconds."""
    if what == "neighbour":
        subprocess.run([*command, "--play", "neighbour", "--calm", "0", "--fault", str(seconds)], check=False,
                       stdout=subprocess.DEVNULL, env={**os.environ, "REPLAYWATCH_PROBE": "0"})  # fmt: skip
        return
    end = time.monotonic() + seconds - 1
    while time.monotonic() < end and victim.poll() is None:
        victim.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        victim.send_signal(signal.SIGCONT)
        time.sleep(0.1)


def record(name: str, calm: float, fault: float, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """One situation: the batches that came in, and its truth."""
    situation, sink = SITUATIONS[name], Sink()
    path = folder / f"{name}.sock"
    agent = subprocess.Popen(
        [sys.executable, "-m", "replaywatch.cli.main", "agent", "--socket", str(path), "--spool-dir",
         str(folder / f"{name}.spool"), "--listen", "off", "--collector-url", sink.url, "--batch-seconds", "1",
         "--device-seconds", "1"],
        env={**os.environ, "REPLAYWATCH_PROBE": "0", "PYTHONPATH": str(ROOT / "agent")}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not path.exists() and agent.poll() is None:
        time.sleep(0.05)
    command = [sys.executable, str(Path(__file__))]
    paths = os.pathsep.join([str(ROOT / "agent"), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, **PROBE, "REPLAYWATCH_PROBE_SOCKET": str(path), "PYTHONPATH": paths}
    victim = subprocess.Popen([*command, "--play", name, "--calm", str(calm), "--fault", str(fault)], env=given,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert victim.stdout is not None
    last = ""
    for line in victim.stdout:
        last = line
        if line == "FAULT\n" and situation.from_outside:
            outside(situation.from_outside, victim, command, fault - 2)
    code = victim.wait()
    time.sleep(2.5)
    agent.terminate()
    agent.wait()
    sink.close()
    truth = json.loads(last) if last.startswith("{") else {}
    return [_nameless(b) for b in sink.bodies], {
        "name": name, "code": code, "expected": situation.expected, "is_sudden": situation.is_sudden,
        "batches": len(sink.bodies), **truth,
    }  # fmt: skip


def _nameless(body: bytes) -> str:
    """A batch as one line, without the name of the host that it came from."""
    return json.dumps(json.loads(body), separators=(",", ":")).replace(os.uname().nodename, "node-1")


def main() -> int:
    """Record, or play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", choices=SITUATIONS, default=[*SITUATIONS])
    parser.add_argument("--calm", type=float, default=35.0)
    parser.add_argument("--fault", type=float, default=16.0)
    parser.add_argument("--play", choices=PLAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        if os.environ.get("REPLAYWATCH_PROBE") != "0":
            import replaywatch.probe

            replaywatch.probe.start()
        print(json.dumps(PLAYS[given.play](Player(given.calm + given.fault, given.calm))), flush=True)
        return 0
    from machine import describe_machine

    truths: list[dict[str, Any]] = [{"machine": describe_machine("cuda")}]
    given.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="situations-") as name,
        tarfile.open(given.out / "situations.tar", "w") as tar,
    ):
        folder = Path(name)
        for situation in given.only:
            is_sudden = SITUATIONS[situation].is_sudden or situation == "healthy"
            lines, truth = record(situation, given.calm if is_sudden else 3.0, given.fault, folder)
            packed = folder / f"{situation}.jsonl.gz"
            packed.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0))
            tar.add(packed, packed.name)
            truths.append(truth)
            print(json.dumps(truth), flush=True)
            (given.out / "truth.json").write_text(json.dumps(truths, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
