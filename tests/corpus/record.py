"""Records the labelled corpus: A/B truth and torch.profiler traces of each item, packed into corpus-N.tar.

python3 tests/corpus/record.py --out DIR [--only NAME ...] [--lanes 2] [--budget-seconds 420] [--device cpu --smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ab_timing import BlockPlan
from item import Item
from lane import run_lane
from packing import pack
from privacy import scrub
from recording import Json, Task, append
from workloads import all_items

LOG_NAME = "inductor-cudagraphs"
LOG_S = 60.0
"""Longest time for the log item."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for corpus-N.tar")
    parser.add_argument("--only", nargs="+", default=[], help="items, families or groups to record")
    parser.add_argument("--skip", nargs="+", default=[], help="items, families or groups to leave out")
    parser.add_argument("--list", action="store_true", help="print the items and end")
    parser.add_argument("--budget-seconds", type=float, default=420.0, help="wall time for everything")
    parser.add_argument("--lanes", type=int, default=1, help="devices to use, one recording at a time on each")
    parser.add_argument("--first-device", type=int, default=0, help="index of the first device to use")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes and short blocks")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--alternations", type=int, default=3, help="blocks of each form")
    parser.add_argument("--block-seconds", type=float, default=0.16)
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def chosen(only: list[str], skip: list[str]) -> list[Item]:
    """The items asked for by name, family or group; all of them by default."""
    named = [(item, {item.name, item.family, item.group}) for item in all_items()]
    return [item for item, names in named if (not only or names & set(only)) and not names & set(skip)]


def tasks_of(items: list[Item]) -> list[Task]:
    """The first trace of every item, then the others; items that take long come last of all."""
    firsts = [Task(item, item.traces[0]) for item in items]
    others = [Task(item, spec) for item in items for spec in item.traces[1:]]
    return sorted([*firsts, *others], key=lambda task: task.item.estimate_s > 10)


def print_list(items: list[Item]) -> None:
    """A table of the items with their assumed seconds."""
    for item in items:
        modes = ",".join(spec.suffix for spec in item.traces)
        print(f"{item.group:<15} {item.name:<42} {item.split:<8} {item.estimate_s:5.1f} s  {modes}")
    print(f"{len(items)} items, {sum(i.split == 'holdout' for i in items)} held out, {len(tasks_of(items))} traces")


def lane_environment(scratch: Path, device: int) -> dict[str, str]:
    """One visible device, few compile threads, an Inductor cache of its own; no network for transformers."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": str(device),
        "TORCHINDUCTOR_COMPILE_THREADS": os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", "4"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / f"inductor-{device}"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "KINETO_LOG_LEVEL": "4",
    }


def start_lane(options: argparse.Namespace, lane: int, seconds: float, scratch: Path) -> subprocess.Popen[bytes]:
    """A lane as a process of its own."""
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--lane",
        str(lane),
        "--lanes",
        str(options.lanes),
        "--scratch",
        str(scratch),
        "--device",
        options.device,
        "--seed",
        str(options.seed),
        "--budget-seconds",
        str(seconds),
        "--alternations",
        str(options.alternations),
        "--block-seconds",
        str(options.block_seconds),
        *(["--smoke"] if options.smoke else []),
        *(["--only", *options.only] if options.only else []),
        *(["--skip", *options.skip] if options.skip else []),
    ]
    return subprocess.Popen(command, env=lane_environment(scratch, options.first_device + lane))


def record_all(options: argparse.Namespace, scratch: Path) -> list[Json]:
    """Every lane to its end, then the log item."""
    begin_s = time.monotonic()
    seconds = options.budget_seconds - (LOG_S / 2 if not options.only else 0.0)
    lanes = [start_lane(options, lane, seconds, scratch) for lane in range(options.lanes)]
    for process in lanes:
        try:
            process.wait(timeout=max(1.0, seconds + 30 - (time.monotonic() - begin_s)))
        except subprocess.TimeoutExpired:
            process.kill()
    left_s = options.budget_seconds - (time.monotonic() - begin_s)
    if (not options.only or LOG_NAME in options.only) and left_s > 15:
        run_log_item(options, scratch, min(LOG_S, left_s))
    return [line for path in sorted(scratch.glob("lines-*.jsonl")) for line in read_lines(path)]


def run_log_item(options: argparse.Namespace, scratch: Path, seconds: float) -> None:
    """Record Inductor's own lines about lost graphs, as a log file and a manifest line."""
    script = Path(__file__).resolve().parent / "workloads" / "inductor_skips.py"
    environment = lane_environment(scratch, options.first_device)
    environment |= {"TORCH_LOGS": "+cudagraphs,perf_hints", "PYTHONWARNINGS": "default"}
    line: Json = {
        "name": LOG_NAME,
        "family": "inductor-log",
        "kind": "log",
        "label": "fault",
        "split": "fit",
        "expected_findings": ["downgrade", "thrash"],
        "seed": options.seed,
    }
    try:
        done = subprocess.run(
            [sys.executable, str(script), str(options.seed)],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        text = done.stderr + done.stdout
    except subprocess.TimeoutExpired as stopped:
        raw = stopped.stderr or b""
        text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
        line["error"] = {"stage": "log", "message": f"stopped after {seconds:.0f} s; the lines so far are kept"}
    log = scratch / f"{LOG_NAME}.log"
    log.write_text(scrub(text)[:600_000], encoding="utf-8")
    append(scratch / "lines-log.jsonl", line | {"log": log.name, "lines": text.count("\n")})


def read_lines(path: Path) -> list[Json]:
    """The JSON lines of a file; a line cut off by a killed process is left out."""
    records: list[Json] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def write_manifest(scratch: Path, lines: list[Json]) -> None:
    """manifest.jsonl, one line a recording."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (scratch / "manifest.jsonl").write_text(text, encoding="utf-8")


def print_summary(lines: list[Json], out: Path) -> None:
    """What failed, and how many of each severity."""
    for line in lines:
        if "error" in line:
            print(f"not recorded: {line['name']}: {str(line['error'])[:300]}")
    complete = [line for line in lines if "truth" in line]
    for severity in ("none", "info", "warn", "page"):
        print(f"severity {severity}: {sum(line['expected_max_severity'] == severity for line in complete)} recordings")
    unsteady = sum(not line["host_is_steady"] for line in complete)
    tars = ", ".join(f"{tar.name} {tar.stat().st_size / 1e6:.2f} MB" for tar in sorted(out.glob("corpus-*.tar")))
    print(f"{len(complete)} of {len(lines)} recordings complete, {unsteady} on an unsteady host; {tars}", flush=True)


def main() -> int:
    """Parent: run the lanes and pack. Lane: record its share."""
    options = parse(sys.argv[1:])
    items = chosen(options.only, options.skip)
    if options.list:
        print_list(items)
        return 0
    if options.lane is not None:
        plan = BlockPlan(options.alternations, 0.02 if options.smoke else options.block_seconds)
        tasks = tasks_of(items)[options.lane :: options.lanes]
        run_lane(
            tasks,
            options.device,
            options.smoke,
            options.seed,
            plan,
            options.scratch,
            options.budget_seconds,
            options.lane,
        )
        return 0
    if options.out is None:
        print("record.py: --out DIR is needed (or --list)", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        lines = record_all(options, Path(scratch))
        write_manifest(Path(scratch), lines)
        pack(Path(scratch), options.out)
    print_summary(lines, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
