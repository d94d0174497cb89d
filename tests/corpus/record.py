"""Records the labelled corpus: A/B truth and torch.profiler traces of each item, packed into corpus-N.tar.

python3 tests/corpus/record.py --out DIR [--only NAME ...] [--budget-seconds 420] [--device cpu --smoke] [--list]
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
from machine import describe_machine
from packing import pack
from privacy import scrub
from worker import Json, Limits, append, describe, run_group
from workloads import GROUPS, all_items

RESERVED_S = {"decoder-graphs": 75.0, "steady": 75.0, "generate": 72.0, "recapture": 18.0, "compiled": 70.0}
"""Seconds that the groups before leave to each of these; what they do not use goes to the next."""
START_S = 7.0
"""Assumed cost of a process: importing torch, opening the device, raising its clocks."""
LOG_NAME = "inductor-cudagraphs"
LOG_S = 30.0
"""Assumed cost of the log item."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for corpus-N.tar")
    parser.add_argument("--only", nargs="+", default=[], help="items, families or groups to record")
    parser.add_argument("--list", action="store_true", help="print the items and end")
    parser.add_argument("--budget-seconds", type=float, default=420.0, help="wall time for everything")
    parser.add_argument("--max-bytes", type=int, default=14_000_000, help="bytes of all traces together")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes and short blocks")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--alternations", type=int, default=5, help="blocks of each form")
    parser.add_argument("--block-seconds", type=float, default=0.16)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def chosen(only: list[str]) -> list[Item]:
    """The items asked for by name, family or group; all of them by default."""
    return [item for item in all_items() if not only or {item.name, item.family, item.group} & set(only)]


def print_list(items: list[Item]) -> None:
    """A table of the items with their assumed seconds."""
    for item in items:
        modes = ",".join(spec.suffix for spec in item.traces)
        print(f"{item.group:<15} {item.name:<42} {item.split:<8} {item.estimate_s:5.1f} s  {modes}")
    held = sum(item.split == "holdout" for item in items)
    total_s = sum(item.estimate_s for item in items)
    print(f"{len(items)} items, {held} held out, about {total_s:.0f} s and {START_S:.0f} s for each process")


def worker_environment(scratch: Path) -> dict[str, str]:
    """Few compile threads and a cache of its own for Inductor; no network for transformers."""
    return {
        **os.environ,
        "TORCHINDUCTOR_COMPILE_THREADS": os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", "8"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "KINETO_LOG_LEVEL": "4",
    }


def run_worker(options: argparse.Namespace, group: str, seconds: float, max_bytes: int, scratch: Path) -> str | None:
    """Record one group in a process of its own; the text of what went wrong, if anything did."""
    command = [
        sys.executable, str(Path(__file__).resolve()), "--worker", group, "--scratch", str(scratch),
        "--device", options.device, "--seed", str(options.seed), "--max-bytes", str(max_bytes),
        "--budget-seconds", str(seconds), "--alternations", str(options.alternations),
        "--block-seconds", str(options.block_seconds), *(["--smoke"] if options.smoke else []),
        *(["--only", *options.only] if options.only else []),
    ]
    try:
        done = subprocess.run(command, env=worker_environment(scratch), timeout=seconds + 20, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds + 20:.0f} s"
    return None if done.returncode == 0 else f"exit status {done.returncode}"


def run_log_item(options: argparse.Namespace, scratch: Path, seconds: float) -> None:
    """Record Inductor's own lines about lost graphs, as a log file and a manifest line."""
    script = Path(__file__).resolve().parent / "workloads" / "inductor_skips.py"
    env = {**worker_environment(scratch), "TORCH_LOGS": "+cudagraphs,perf_hints", "PYTHONWARNINGS": "default"}
    record: Json = {"name": LOG_NAME, "family": "inductor-log", "kind": "log", "label": "fault", "split": "fit",
                    "expected_findings": ["downgrade", "thrash"], "seed": options.seed}
    begin_s = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, str(script), str(options.seed)], env=env, capture_output=True,
                              text=True, errors="replace", timeout=seconds, check=False)
        text = done.stderr + done.stdout
    except subprocess.TimeoutExpired as stopped:
        raw = stopped.stderr or b""
        text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
        record["error"] = {"stage": "log", "message": f"stopped after {seconds:.0f} s; the lines so far are kept"}
    log = scratch / f"{LOG_NAME}.log"
    log.write_text(scrub(text)[:600_000], encoding="utf-8")
    record |= {"log": log.name, "lines": text.count("\n"), "measure_s": round(time.perf_counter() - begin_s, 2)}
    append(scratch / f"final-{LOG_NAME}.jsonl", record)
    print(f"  {LOG_NAME}: {record['lines']} lines in {record['measure_s']} s", flush=True)


def read_lines(path: Path) -> list[Json]:
    """The JSON lines of a file, none where it is absent; a line cut off by a killed process is left out."""
    if not path.exists():
        return []
    records: list[Json] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def merge_group(scratch: Path, group: str, trouble: str | None, items: list[Item]) -> list[Json]:
    """Final lines of a group; where they are missing, the truth alone or the bare name, with the reason."""
    final = {str(record["name"]): record for record in read_lines(scratch / f"final-{group}.jsonl")}
    truth = {str(record["name"]): record for record in read_lines(scratch / f"truth-{group}.jsonl")}
    machine = next(iter(read_lines(scratch / f"machine-{group}.jsonl")), {})
    why = {"stage": "process", "message": trouble or "the process wrote nothing about this item"}
    merged: list[Json] = []
    for item in items:
        record = final.get(item.name) or truth.get(item.name) or {**describe(item), "error": why}
        if item.name not in final and "error" not in record:
            record = {**record, "error": why}
        merged.append({**record, **machine})
    return merged


def write_manifest(scratch: Path, records: list[Json], machine: Json) -> None:
    """manifest.jsonl, whole each time: one line an item, machine and date in each.

    The machine is what the first worker saw: this process never opens the device.
    """
    seen = next((line for path in sorted(scratch.glob("machine-*.jsonl")) for line in read_lines(path)), {})
    machine = {**machine, **{key: seen[key] for key in ("machine", "date") if key in seen}}
    lines = [json.dumps({**machine, **record}, separators=(",", ":")) for record in records]
    (scratch / "manifest.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def seconds_for(items: list[Item], left_s: float) -> float:
    """A group may take half as long again as assumed, if that is left."""
    traces = sum(len(item.traces) for item in items)
    return min(left_s, START_S + 1.6 * sum(item.estimate_s for item in items) + 2.5 * traces)


def reserved_after(group: str, items: list[Item], budget_s: float) -> float:
    """Seconds kept for the groups after `group` that were asked for; less in a smaller budget."""
    order = [*GROUPS[:6], LOG_NAME, *GROUPS[6:]]
    kept_s = 0.0
    for name in order[order.index(group) + 1 :]:
        of_group = [item for item in items if item.group == name]
        kept_s += min(RESERVED_S.get(name, 0.0), seconds_for(of_group, budget_s)) if of_group else 0.0
    return kept_s * min(1.0, budget_s / 420.0)


def record_all(options: argparse.Namespace, items: list[Item], scratch: Path) -> list[Json]:
    """Run the groups in order and pack after each, so that a run cut short keeps what it has."""
    begin_s = time.monotonic()
    date = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    machine: Json = {"machine": dict(describe_machine("cpu")), "date": date}
    records: list[Json] = []
    for group in [*GROUPS[:6], LOG_NAME, *GROUPS[6:]]:
        left_s = options.budget_seconds - (time.monotonic() - begin_s)
        of_group = [item for item in items if item.group == group]
        if group == LOG_NAME:
            if (not options.only or LOG_NAME in options.only) and left_s > LOG_S / 2:
                print(f"== {group} ({left_s:.0f} s left)", flush=True)
                run_log_item(options, scratch, min(2 * LOG_S, left_s))
                records += read_lines(scratch / f"final-{LOG_NAME}.jsonl")
        elif of_group:
            left_s -= reserved_after(group, items, options.budget_seconds)
            records += record_group(options, group, of_group, scratch, left_s)
        write_manifest(scratch, records, machine)
        pack(scratch, options.out)
    return records


def record_group(
    options: argparse.Namespace, group: str, items: list[Item], scratch: Path, left_s: float
) -> list[Json]:
    """One group in its process, or its items as skipped where no time is left."""
    if left_s < START_S + items[0].estimate_s + 2.0:
        print(f"== {group}: skipped, {left_s:.0f} s left", flush=True)
        return [{**describe(item), "error": {"stage": "process", "message": "no time left"}} for item in items]
    used = sum(file.stat().st_size for file in scratch.glob("*.json.gz"))
    seconds = seconds_for(items, left_s)
    print(f"== {group}: {len(items)} items, {seconds:.0f} s of the {left_s:.0f} s left", flush=True)
    trouble = run_worker(options, group, seconds - 2.0, options.max_bytes - used, scratch)
    if trouble:
        print(f"== {group}: {trouble}", flush=True)
    return merge_group(scratch, group, trouble, items)


def print_summary(records: list[Json], out: Path) -> None:
    """A short table at the end: what failed, and how many of each label and severity."""
    failed = [record for record in records if "error" in record]
    for record in failed:
        print(f"not recorded in full: {record['name']}: {record['error']}")
    complete = [record for record in records if "error" not in record]
    for severity in ("none", "info", "warn", "page"):
        print(f"severity {severity}: {sum(r.get('expected_max_severity') == severity for r in complete)} items")
    for tar in sorted(out.glob("corpus-*.tar")):
        print(f"{tar.name}: {tar.stat().st_size / 1e6:.2f} MB")
    print(f"{len(complete)} of {len(records)} items complete", flush=True)


def main() -> int:
    """Parent: run and pack. Worker: record one group."""
    options = parse(sys.argv[1:])
    items = chosen(options.only)
    if options.list:
        print_list(items)
        return 0
    if options.worker:
        plan = BlockPlan(options.alternations, 0.02 if options.smoke else options.block_seconds)
        limits = Limits(options.budget_seconds, options.max_bytes, plan)
        group = [item for item in items if item.group == options.worker]
        run_group(group, options.device, options.smoke, options.seed, options.scratch, limits)
        return 0
    if options.out is None:
        print("record.py: --out DIR is needed (or --list)", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        records = record_all(options, items, Path(scratch))
    print_summary(records, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
