"""Short torch.profiler traces of a few steps, compressed, counted and freed of names of hosts and people."""

from __future__ import annotations

import contextlib
import gzip
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from item import Mode, TraceSpec
from privacy import scrub
from torch.profiler import ProfilerActivity, profile, schedule
from torch.profiler.profiler import _KinetoProfile

Step = Callable[[], None]
_CATEGORY = re.compile(r'"cat": "([^"]+)"')


@dataclass(frozen=True)
class TraceRun:
    """One recorded trace: where it lies, how long its steps took under the profiler, and what it holds.

    `gauge_us` is the host's gauge right behind the traced steps.
    """

    file: Path
    file_bytes: int
    traced_us: float
    steps: int
    events: dict[str, int]
    gauge_us: float


def activities_of(mode: Mode, cuda: bool) -> list[ProfilerActivity]:
    """The profiler activities of a mode; without CUDA there is only the CPU."""
    if not cuda:
        return [ProfilerActivity.CPU]
    return [ProfilerActivity.CUDA] if mode == "cuda" else [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def run_annotated(prof: profile, step: Step, sync: Step, warmups: int, calls: int) -> float:
    """Warm up, then run `calls` annotated steps; wall microseconds per call. The device is idle at both ends."""
    prof.start()
    for _ in range(warmups):
        step()
        sync()
        prof.step()
    begin_ns = end_ns = time.perf_counter_ns()
    for call in range(calls):
        step()
        if call == calls - 1:
            sync()
            end_ns = time.perf_counter_ns()
        prof.step()
    prof.stop()
    return (end_ns - begin_ns) / calls / 1e3


def run_bare(prof: _KinetoProfile, step: Step, sync: Step, warmups: int, calls: int) -> float:
    """The same without a single annotation: `_KinetoProfile` is the part of `profile` below its step counter."""
    prof.prepare_trace()
    for _ in range(warmups):
        step()
    sync()
    prof.start_trace()
    begin_ns = time.perf_counter_ns()
    for _ in range(calls):
        step()
    sync()
    end_ns = time.perf_counter_ns()
    prof.stop_trace()
    return (end_ns - begin_ns) / calls / 1e3


@contextlib.contextmanager
def stopped_on_error(prof: _KinetoProfile) -> Iterator[None]:
    """A step that raises must not leave the profiler running: the next one would refuse to start."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            prof.stop_trace()
        raise


def profile_steps(
    step: Step, sync: Step, spec: TraceSpec, cuda: bool, calls: int, warmups: int = 2
) -> tuple[_KinetoProfile, float]:
    """Run under the profiler; the finished profiler and the traced wall microseconds per call."""
    activities = activities_of(spec.mode, cuda)
    stack = spec.mode == "stack"
    if not spec.annotate:
        bare = _KinetoProfile(activities=activities, record_shapes=stack, with_stack=stack)
        with stopped_on_error(bare):
            return bare, run_bare(bare, step, sync, warmups, calls)
    plan = schedule(wait=0, warmup=warmups, active=calls, repeat=1)
    prof = profile(activities=activities, schedule=plan, record_shapes=stack, with_stack=stack)
    with stopped_on_error(prof):
        return prof, run_annotated(prof, step, sync, warmups, calls)


def count_events(text: str) -> dict[str, int]:
    """Events of a Chrome trace by category, and the graph launches among them as `graph_launches`."""
    counts = Counter(_CATEGORY.findall(text))
    launches = sum(text.count(f'"name": "{call}') for call in ("cudaGraphLaunch", "cuGraphLaunch"))
    return {**dict(counts.most_common()), "graph_launches": launches}


def record_trace(
    step: Step,
    sync: Step,
    spec: TraceSpec,
    cuda: bool,
    calls: int,
    steps_per_call: int,
    file: Path,
    gauge: Callable[[], float],
) -> TraceRun:
    """Record `calls` calls of `step` into `file` (a .json.gz)."""
    prof, call_us = profile_steps(step, sync, spec, cuda, calls)
    gauge_us = gauge()
    raw = file.with_suffix("")
    prof.export_chrome_trace(str(raw))
    text = scrub(raw.read_text(encoding="utf-8", errors="replace"))
    raw.unlink()
    file.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    steps = calls * steps_per_call
    return TraceRun(file, file.stat().st_size, call_us / steps_per_call, steps, count_events(text), gauge_us)
