"""One lane of the recording: one device, one fork a recording, so that libraries are imported only once.

The parent of the forks never opens the device: a process that has cannot fork.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path

from ab_timing import BlockPlan
from recording import Json, Task, append, describe, failure, line_of, record

FORK_S = 4.0
"""Assumed cost of a fork beside its item: opening the device, building, tracing."""


def run_lane(
    tasks: list[Task], device: str, smoke: bool, seed: int, plan: BlockPlan, scratch: Path, seconds: float, lane: int
) -> None:
    """Record tasks in order while time lasts; each writes its manifest line as soon as it is done."""
    end_s = time.monotonic() + seconds
    lines = scratch / f"lines-{lane}.jsonl"
    for task in tasks:
        left_s = end_s - time.monotonic()
        if left_s < task.item.estimate_s + FORK_S:
            append(lines, {**describe(task), "error": {"stage": "lane", "message": "no time left"}})
            continue
        trouble = _in_fork(task, device, smoke, seed, plan, scratch, lines, min(left_s, _patience_s(task)))
        if trouble:
            append(lines, {**describe(task), "error": {"stage": "process", "message": trouble}})
            print(f"lane {lane}: {task.name}: {trouble}", flush=True)


def _patience_s(task: Task) -> float:
    return 2 * task.item.estimate_s + 20.0


def _in_fork(
    task: Task, device: str, smoke: bool, seed: int, plan: BlockPlan, scratch: Path, lines: Path, patience_s: float
) -> str | None:
    """The text of what went wrong, if the child could not say it itself."""
    child = os.fork()
    if child == 0:
        os._exit(_child(task, device, smoke, seed, plan, scratch, lines))
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code == 0 else f"exit status {code}"
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"stopped after {patience_s:.0f} s"


def _child(task: Task, device: str, smoke: bool, seed: int, plan: BlockPlan, scratch: Path, lines: Path) -> int:
    try:
        line: Json = record(task, device, smoke, seed, plan, scratch)
    except BaseException:
        append(lines, failure(task, "record"))
        print(f"{task.name}: FAILED\n{traceback.format_exc(limit=-3)}", flush=True)
    else:
        append(lines, line)
        print(line_of(line), flush=True)
    sys.stdout.flush()
    sys.stderr.flush()
    return 0
