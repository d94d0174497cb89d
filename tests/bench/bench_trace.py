"""How fast a trace is read and judged, and how much memory that takes, as ratios in one run.

    python tests/bench/bench_trace.py [--repeat 5] [--megabytes 256]

Every measurement is a fresh process, imports included, in turn with the others. HolisticTraceAnalysis lives in an
environment of its own: HTA_PYTHON names its interpreter (pip install HolisticTraceAnalysis); it merely loads the trace.
The trace of 109,000 events is the published one beside the checkout; the large one is made here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "data" / "kineto" / "a100_training_mostly_uncovered.json.gz"
PATHS = [str(ROOT / part) for part in ("agent", "detectors", "collector")]

# Each prints one JSON line: seconds of the work proper, imports left out. Peak memory is read from the process's end.
OURS = """
import sys, time, json
from replaywatch.sources.reader import read
from replaywatch.analyze.result import judge_recording
begin = time.perf_counter()
judge_recording(read(sys.argv[1]))
print(json.dumps(time.perf_counter() - begin))
"""
READING = OURS.replace("judge_recording(read(sys.argv[1]))", "read(sys.argv[1])").replace(
    "from replaywatch.analyze.result import judge_recording\n", ""
)
DECODING = """
import gzip, sys, time, json, msgspec
from replaywatch.sources.eventstream import Event
class Document(msgspec.Struct):
    traceEvents: list[Event]
begin = time.perf_counter()
msgspec.json.decode(gzip.open(sys.argv[1]).read(), type=Document)
print(json.dumps(time.perf_counter() - begin))
"""
HTA = """
import sys, time, json, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
begin = time.perf_counter()
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
print(json.dumps(time.perf_counter() - begin))
"""


@dataclass(frozen=True)
class Run:
    """One fresh process: its whole time, the time of its work proper, its peak memory."""

    total_s: float
    work_s: float
    peak_mb: float


def run(python: str, code: str, path: Path) -> Run:
    """Run some code on a trace in a fresh interpreter. Raises: CalledProcessError when it fails."""
    wrapper = (
        "import resource, subprocess, sys, time, json\n"
        "begin = time.perf_counter()\n"
        "out = subprocess.run(sys.argv[1:], check=True, stdout=subprocess.PIPE).stdout\n"
        "total = time.perf_counter() - begin\n"
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024\n"
        "print(json.dumps([total, json.loads(out.splitlines()[-1]), peak]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    command = [sys.executable, "-c", wrapper, python, "-c", code, str(path)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    total, work, peak = json.loads(out)
    return Run(total, work, peak)


def in_turn(candidates: dict[str, tuple[str, str]], path: Path, repeat: int) -> dict[str, list[Run]]:
    """All candidates, one after the other, several times, after one round that only warms the disk."""
    runs: dict[str, list[Run]] = {name: [] for name in candidates}
    for turn in range(repeat + 1):
        for name, (python, code) in candidates.items():
            result = run(python, code, path)
            if turn:
                runs[name].append(result)
    return runs


def show(name: str, runs: list[Run]) -> None:
    totals = [r.total_s for r in runs]
    print(
        f"  {name:34s} {statistics.median(totals):7.3f} s ({min(totals):.3f} to {max(totals):.3f}), without imports "
        f"{statistics.median(r.work_s for r in runs):7.3f} s, peak {max(r.peak_mb for r in runs):6.0f} MB"
    )


def ratio(slow: list[float], fast: list[float]) -> str:
    """Median ratio of paired runs, with its spread."""
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return f"{statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def compare(repeat: int) -> None:
    """The published trace: ours against HolisticTraceAnalysis and against bare decoding."""
    if not PUBLISHED.exists():
        print(f"skipped: {PUBLISHED.name} is not beside the checkout")
        return
    candidates = {
        "replaywatch, read and judge": (sys.executable, OURS),
        "replaywatch, read": (sys.executable, READING),
        "msgspec, typed decoding alone": (sys.executable, DECODING),
    }
    hta = os.environ.get("HTA_PYTHON")
    if hta:
        candidates["HolisticTraceAnalysis, load"] = (hta, HTA)
    runs = in_turn(candidates, PUBLISHED, repeat)
    print(f"{PUBLISHED.name}, {repeat} runs each in turn, fresh processes")
    for name, results in runs.items():
        show(name, results)
    ours = runs["replaywatch, read and judge"]
    totals = [r.total_s for r in ours]
    decoding = [r.total_s for r in runs["msgspec, typed decoding alone"]]
    print(f"  ours takes {ratio(totals, decoding)} times as long as decoding alone")
    if not hta:
        print("  skipped: HTA_PYTHON names no interpreter that has HolisticTraceAnalysis")
        return
    theirs = runs["HolisticTraceAnalysis, load"]
    print(f"  HTA's load takes {ratio([r.total_s for r in theirs], totals)} times as long as ours, imports in both")
    print(f"  HTA's load takes {ratio([r.work_s for r in theirs], [r.work_s for r in ours])} times, imports in neither")
    print(f"  HTA's load takes {ratio([r.work_s for r in theirs], totals)} times, imports in ours only")


def step_events(step: int) -> Iterator[str]:
    """The events of one eager step of 400 kernels, as torch.profiler writes them, with names and arguments as long."""
    at, name = 1_000_000.0 + step * 20_000, "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor>"
    shape = '"Input Dims": [[4, 1, 2048], [2048, 2048], []], "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"]'
    head = '"pid": 7, "tid": 7, "ts": '
    yield f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", {head}{at:.3f}, "dur": 19990.0}}'
    for k in range(400):
        number, ts = step * 400 + k + 1, at + k * 48
        yield (
            f'{{"ph": "X", "cat": "cpu_op", "name": "aten::mul", {head}{ts:.3f}, "dur": 40.5, "args": '
            f'{{"External id": {number}, "Record function id": 0, {shape}, "Ev Idx": {number}}}}}'
        )
        yield (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {head}{ts + 20:.3f}, "dur": 6.25, '
            f'"args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}}}'
        )
        yield (
            f'{{"ph": "X", "cat": "kernel", "name": "{name}{k % 40}", "pid": 0, "tid": 7, "ts": {ts + 30:.3f}, '
            f'"dur": 3.125, "args": {{"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
            f'"correlation": {number}, "registers per thread": 32, "grid": [64, 1, 1], "block": [128, 1, 1]}}}}'
        )
        yield f'{{"ph": "s", "id": {number}, "pid": 7, "tid": 7, "ts": {ts + 20:.3f}, "cat": "ac2g", "name": "ac2g"}}'


def write_large(path: Path, size: int) -> int:
    """Write a trace of about so many bytes; the number of its events."""
    events = step = 0
    with path.open("w") as out:
        out.write('{"schemaVersion": 1, "traceEvents": [')
        while out.tell() < size:
            lines = list(step_events(step))
            out.write(("," if step else "") + "\n  " + ",\n  ".join(lines))
            events, step = events + len(lines), step + 1
        out.write('], "traceName": "large"}')
    return events


def measure_large(megabytes: int) -> None:
    """A large trace: seconds and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        events = write_large(path, megabytes << 20)
        result = run(sys.executable, OURS, path)
        size = path.stat().st_size / (1 << 20)
        print(f"a trace of {size:.0f} MB and {events:,} events")
        show("replaywatch, read and judge", [result])
        print(f"  peak memory is {result.peak_mb / size:.2f} times the file, {size / result.total_s:.0f} MB/s")


def main() -> None:
    """Print all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()
    compare(options.repeat)
    measure_large(options.megabytes)


if __name__ == "__main__":
    main()
