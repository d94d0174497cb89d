"""The tracer in a process without Python, on a real driver: kernel windows, graph-level records, a chained injection.

    python3 tests/gpu/injected.py --json out.json        (one GPU, nvcc, the native tracer; one minute)

A CUDA program of ours (plain_program.cu) replays a graph of 40 kernels, then launches them one by one. It runs without
the tracer and with it, in turn, and must compute the same; what the frames say is held against its own counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests", "tests/corpus")]

from engines_gpu.frames import Receiver  # noqa: E402

HERE = Path(__file__).resolve().parent
CHAIN = 40
EACH_S = 4.0
OTHER = """#include <cstdio>
extern "C" int InitializeInjection() { std::fputs("other was here", stderr); return 1; }
"""


def compile_program(folder: Path) -> Path:
    """plain_program.cu, with nvcc."""
    program = folder / "plain_program"
    subprocess.run(["nvcc", "-O2", "-o", str(program), str(HERE / "plain_program.cu")], check=True)
    return program


def compile_other(folder: Path) -> Path:
    """A library that says when the driver's injection was handed on to it."""
    source, library = folder / "other.cpp", folder / "other.so"
    source.write_text(OTHER)
    subprocess.run(["c++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def run(program: Path, folder: Path, arguments: list[str], more: dict[str, str] | None) -> dict[str, Any]:
    """One run; `more` None: without the tracer. Shape: what the program printed, its errors, and the frames' sums."""
    receiver = Receiver(folder / "agent.sock", folder / "frames.jsonl")
    environment = dict(os.environ)
    if more is not None:
        environment |= {
            "CUDA_INJECTION64_PATH": str(library()), "REPLAYWATCH_SOCKET": str(receiver.path),
            "REPLAYWATCH_TRACE_FIRST_MS": "500", "REPLAYWATCH_TRACE_PERIOD_MS": "1000",
            "REPLAYWATCH_TRACE_WINDOW_MS": "100", **more,
        }  # fmt: skip
    done = subprocess.run([str(program), *arguments], env=environment, capture_output=True, text=True, check=False)
    receiver.close()
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    return {
        "code": done.returncode, **said, "errors": done.stderr[-600:], "refused": receiver.refused[:3],
        **seen(receiver),
    }  # fmt: skip


def seen(receiver: Receiver) -> dict[str, Any]:
    """Sums over the frames of one run."""
    windows = [w for w in receiver.windows() if w.traced is not None]
    graph = [w for w in windows if w.traced and w.traced.total_graph_kernels > w.traced.total_kernels / 2]
    eager = [w for w in windows if w not in graph]
    replays = [w.timing.replay for w in receiver.windows() if w.timing.replay is not None]
    return {
        "windows": len(windows),
        "coverage": [round(w.traced.coverage or 0, 4) for w in windows if w.traced],
        "kernels_a_replay": [round(w.traced.kernels / w.traced.steps, 3) for w in graph if w.traced and w.traced.steps],
        "graph_windows": len(graph), "eager_windows": len(eager),
        "all_windows": [_about(w, receiver.windows()[0].start_ns) for w in receiver.windows()],
        "timed_replays": sum(r.count for r in replays),
        "replay_us": round(statistics.median(r.quantile(0.5) for r in replays) / 1e3, 2) if replays else None,
        "dispatch_replays": sum(w.dispatch.replays or 0 for w in receiver.windows()),
        "blind": sorted({b.reason for w in receiver.windows() for b in w.blind}),
    }  # fmt: skip


def _about(window: Any, begin_ns: int) -> dict[str, Any]:
    """When a window was, and what it holds."""
    work = window.traced
    return {
        "at_s": round((window.start_ns - begin_ns) / 1e9, 2), "ms": round((window.end_ns - window.start_ns) / 1e6),
        "kernels": work.total_kernels if work else None, "steps": work.steps if work else None,
    }  # fmt: skip


def library() -> Path:
    """The native tracer. Raises: SystemExit where it was not built."""
    from replaywatch.probe.tracer import find_library

    found = find_library()
    if found is None:
        raise SystemExit("the native tracer was not built; see agent/cupti-tracer/README.md")
    return found


def wrong(results: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    told = []
    for name, found in results.items():
        if found["code"] or not found.get("is_right") or found["refused"]:
            told.append(f"{name}: the program failed, or a frame was refused")
    kernels, level, chained = results["kernel windows"], results["graph level"], results["chained"]
    if kernels["graph_windows"] < 2 or kernels["eager_windows"] < 2:
        told.append("kernel windows: both kinds must be seen")
    if sum(c not in (0.0, 1.0) for c in kernels["coverage"]) > 1:
        told.append("kernel windows: at most one lies across the change from replays to launches")
    if any(abs(k - CHAIN) > 0.02 * CHAIN for k in kernels["kernels_a_replay"]):
        told.append("kernel windows: a replay has 40 kernels")
    if level["timed_replays"] != level["replays"]:
        told.append(f"graph level: {level['timed_replays']} replays of {level['replays']}")
    if "other was here" not in chained["errors"]:
        told.append("chained: the other must have run")
    if not any("windows leave CUPTI to it" in reason for reason in chained["blind"]):
        told.append("chained: CUPTI is the other's, and that is told")
    return told


def main() -> int:
    """Run all ways, in turn with none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    from machine import describe_machine

    times, graph_level = [str(EACH_S)], {"REPLAYWATCH_GRAPH_TRACE": "1", "REPLAYWATCH_TRACE_WINDOW_MS": "1000"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, other = compile_program(folder), compile_other(folder)
        results = {
            "without": run(program, folder, times, None),
            "kernel windows": run(program, folder, times, {}),
            "without, again": run(program, folder, times, None),
            "graph level": run(program, folder, ["0", "20000"], graph_level),
            "chained": run(program, folder, times, {"REPLAYWATCH_CHAIN_INJECTION": str(other)}),
        }
    told = wrong(results)
    answer = {"machine": describe_machine("cuda"), "results": results, "wrong": told}
    print(json.dumps(answer, indent=1))
    if given.json:
        given.json.write_text(json.dumps(answer, indent=1))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
