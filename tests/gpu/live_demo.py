"""The demo's live form through the whole product on a GPU: probe, agent, collector, and what the collector says.

    python3 tests/gpu/live_demo.py --json out.json        (one GPU, torch, the server's packages; six minutes)

Each scenario of replaywatch.demo.live runs for a while as `replaywatch run` starts it, without kernel tracing and with
it; the collector's own answer is kept. The truth beside it: the same decoder's graphs and eager steps in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("agent", "detectors", "collector")
sys.path[:0] = [str(ROOT / name) for name in (*PARTS, "tests/corpus")]

EXPECTED = {"graphs": None, "eager": "disabled", "past-ceiling": "overflow"}
COMMAND = [sys.executable, "-m", "replaywatch.cli.main"]


def step_times() -> dict[str, Any]:
    """The same from a process that is gone before others use the device, or it would count as shared."""
    command = [sys.executable, __file__, "--step-times"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def time_steps(seconds: float = 1.5) -> dict[str, Any]:
    """Milliseconds of a step of each kind, by batch, and what graphs bring back."""
    import torch

    from replaywatch.demo.live import Shape, build_step, capture

    found: dict[str, Any] = {}
    with torch.inference_mode():
        for batch in (8, 16, 32, 48):
            step = build_step(Shape(), batch)
            ways, times = {"eager": step, "graph": capture(step).replay}, {}
            for name, run in ways.items():
                begin, count = time.perf_counter(), 0
                while time.perf_counter() - begin < seconds:
                    run()
                    torch.cuda.synchronize()
                    count += 1
                times[name] = (time.perf_counter() - begin) / count * 1e3
            found[str(batch)] = times | {"recoverable": 1 - times["graph"] / times["eager"]}
    return found


def told(url: str, model: str) -> dict[str, Any]:
    """The collector's answer for one workload, in short."""
    with urllib.request.urlopen(f"{url}/v1/workloads", timeout=5) as answer:
        listed = json.load(answer)["workloads"]
    mine = [w for w in listed if w["workload"].get("model_name") == model]
    return mine[-1] if mine else {}


def scenario(name: str, url: str, socket: str, seconds: float, kernels: bool) -> dict[str, Any]:
    """One run, and what the collector said of it at its end."""
    model = f"{name}{'-traced' if kernels else ''}"
    environment = {
        **os.environ, "REPLAYWATCH_PROBE_SOCKET": socket, "REPLAYWATCH_PROBE_MODEL_NAME": model,
        "REPLAYWATCH_PROBE_KERNELS": str(int(kernels)), "REPLAYWATCH_PROBE_TRACE_EVERY_SECONDS": "5",
        "PYTHONPATH": os.pathsep.join([*(str(ROOT / p) for p in PARTS), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [*COMMAND, "run", "--", sys.executable, "-m", "replaywatch.demo.live", name, "--seconds", str(seconds)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    answer: dict[str, Any] = {}
    while process.poll() is None:
        time.sleep(1)
        answer = told(url, model) or answer
    assert process.stdout is not None
    return {"scenario": name, "kernels": kernels, "said": process.stdout.read()[-400:], "told": answer}


def main() -> int:
    """Run all scenarios; 1 where the collector did not see one for what it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each run; the traffic's wave takes 40")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step-times", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step_times:
        print(json.dumps(time_steps()))
        return 0
    from machine import describe_machine

    from replaywatch.demo.stage import Stage

    results: dict[str, Any] = {"machine": describe_machine("cuda"), "steps": step_times(), "runs": []}
    with Stage((), "127.0.0.1", 0) as stage:
        for kernels in (False, True):
            for name, expected in EXPECTED.items():
                run = scenario(name, stage.url, str(stage.socket), given.seconds, kernels)
                findings = [f["detector"] for f in run["told"].get("findings", [])]
                run["right"] = (expected in findings) if expected else run["told"].get("verdict") == "healthy"
                results["runs"].append(run)
                print(name, kernels, run["right"], json.dumps(run["told"])[:600], run["said"], flush=True)
                if given.json:
                    given.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(run["right"] for run in results["runs"]) else 1


if __name__ == "__main__":
    sys.exit(main())
