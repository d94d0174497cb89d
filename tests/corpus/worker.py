"""One process of the recording: times every item of a group first, and only then lets a profiler near it.

After its first use torch.profiler leaves CUPTI attached, so no truth is measured behind a trace.
"""

from __future__ import annotations

import datetime
import json
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ab_timing import BlockPlan, FormTimes, paired_rho, percentile, time_forms
from bench import Bench, open_bench
from item import Forms, Item, severity_of
from machine import describe_machine
from privacy import scrub
from tracing import TraceRun, record_trace

Json = dict[str, object]
TRACE_S = 1.1
"""Assumed cost of one trace in seconds; it only decides what still fits."""


@dataclass(frozen=True)
class Limits:
    """What a worker may use: seconds from its start, and bytes of compressed traces."""

    seconds: float
    trace_bytes: int
    plan: BlockPlan


@dataclass
class Measured:
    """An item that has its truth and waits for its traces."""

    item: Item
    forms: Forms
    record: Json


def describe(item: Item) -> Json:
    """What is known of an item before anything runs."""
    return {
        "name": item.name, "family": item.family, "size": item.size, "kind": item.kind, "group": item.group,
        "split": item.split,
    }


def truth_of(item: Item, forms: Forms, times: Mapping[str, FormTimes]) -> Json:
    """Times in microseconds per step, and rho with its spread over neighbouring blocks."""
    observed, graph = times["observed"], times["graph"]
    eager = observed if item.observed_is_eager else times.get("eager")
    pairs = paired_rho(observed, graph)
    extras = {f"{name}_us": round(times[name].median_us, 2) for name in forms.extras}
    return {
        "observed_us": round(observed.median_us, 2),
        "graph_us": round(graph.median_us, 2),
        "eager_us": None if eager is None else round(eager.median_us, 2),
        "rho": round(1.0 - graph.median_us / observed.median_us, 5),
        "rho_p10": round(percentile(pairs, 0.10), 5),
        "rho_p90": round(percentile(pairs, 0.90), 5),
        "spreads_us": {name: [round(edge, 2) for edge in form.spread_us()] for name, form in times.items()},
        "block_us": {name: [round(us, 2) for us in form.block_us] for name, form in times.items()},
        "steps_per_block": {name: form.calls_per_block * forms.steps_per_call for name, form in times.items()},
        **extras,
    }


def expectation(item: Item, rho: float, truth: Json) -> Json:
    """Label, findings and severities that follow from the kind of the item and its measured rho."""
    severity = severity_of(rho)
    fault = bool(item.findings) and (item.always_fault or severity != "none")
    gap_us = truth.get("without_gap_us")
    observed_us = truth["observed_us"]
    share = None
    if isinstance(gap_us, float) and isinstance(observed_us, float):
        share = round(1.0 - gap_us / observed_us, 5)
    return {
        "label": "fault" if fault else "control",
        "expected_findings": list(item.findings) if fault else [],
        "allowed_findings": list(item.allowed) + ([] if fault else list(item.findings)),
        "expected_max_severity": severity,
        "severity_range": [severity_of(float(str(truth["rho_p10"]))), severity_of(float(str(truth["rho_p90"])))],
        "host_gap_share": share,
    }


def measure(item: Item, bench: Bench, plan: BlockPlan) -> Measured:
    """Build an item and time its forms. No profiler has run in this process yet."""
    begin_s = time.perf_counter()
    forms = item.build(bench)
    times = time_forms(forms.timed(), bench.sync, plan, forms.period_calls, forms.steps_per_call)
    truth = truth_of(item, forms, times)
    rho = float(str(truth["rho"]))
    record = {
        **describe(item),
        **expectation(item, rho, truth),
        "truth": truth,
        "batch": forms.batch,
        "notes": dict(forms.notes),
        "seed": bench.seed,
        "measure_s": round(time.perf_counter() - begin_s, 2),
    }
    return Measured(item, forms, record)


def trace(measured: Measured, bench: Bench, scratch: Path, bytes_left: int, seconds_left: float) -> list[Json]:
    """Record the item's traces; the first always, the others while bytes and seconds last."""
    item, forms = measured.item, measured.forms
    runs: list[Json] = []
    for place, spec in enumerate(item.traces):
        if place > 0 and (bytes_left <= 0 or seconds_left <= 0):
            runs.append({"mode": spec.mode, "annotated": spec.annotate, "skipped": "bytes or seconds used up"})
            continue
        begin_s = time.perf_counter()
        file = scratch / f"{item.name}.{spec.suffix}.json.gz"
        step = forms.traced or forms.observed
        calls = max(1, item.trace_steps)
        run = record_trace(step, bench.sync, spec, bench.cuda, calls, forms.steps_per_traced_call, file)
        runs.append(trace_entry(run, spec.mode, spec.annotate))
        bytes_left -= run.file_bytes
        seconds_left -= time.perf_counter() - begin_s
    return runs


def trace_entry(run: TraceRun, mode: str, annotated: bool) -> Json:
    """The manifest's words about one trace."""
    return {
        "file": run.file.name, "mode": mode, "annotated": annotated, "steps": run.steps,
        "traced_us": round(run.traced_us, 2), "bytes": run.file_bytes, "events": run.events,
        "kernels_per_step": round(run.events.get("kernel", 0) / run.steps, 2),
        "graph_launches_per_step": round(run.events.get("graph_launches", 0) / run.steps, 2),
    }


def failure(item: Item, stage: str) -> Json:
    """A manifest entry for an item that broke, without private paths."""
    lines = scrub(traceback.format_exc(limit=-4)).strip().splitlines()
    return {**describe(item), "error": {"stage": stage, "message": lines[-1][:500], "where": lines[-9:-1]}}


def append(path: Path, record: Json) -> None:
    """Add one JSON line."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, separators=(",", ":")) + "\n")


def measure_all(items: list[Item], bench: Bench, scratch: Path, limits: Limits, begin_s: float) -> list[Measured]:
    """Truth for as many items as leave time for their traces; it is also written at once, in case this process dies."""
    done: list[Measured] = []
    truth_file = scratch / f"truth-{items[0].group}.jsonl"
    traces = 0
    for item in items:
        spent_s = time.perf_counter() - begin_s
        if spent_s + item.estimate_s + TRACE_S * (traces + len(item.traces)) > limits.seconds:
            append(truth_file, {**describe(item), "error": {"stage": "measure", "message": "no time left"}})
            print(f"  {item.name}: skipped, no time left", flush=True)
            continue
        try:
            measured = measure(item, bench, limits.plan)
        except Exception:
            append(truth_file, failure(item, "measure"))
            print(f"  {item.name}: FAILED\n{traceback.format_exc(limit=-3)}", flush=True)
            continue
        append(truth_file, measured.record)
        done.append(measured)
        traces += len(item.traces)
        print(f"  {spent_s:6.1f} s {line_of(measured.record)}", flush=True)
    return done


def line_of(record: Json) -> str:
    """A progress line: times and rho."""
    truth = record["truth"]
    assert isinstance(truth, dict)
    span = f"{truth['rho_p10']:.3f}..{truth['rho_p90']:.3f}"
    return (f"{record['name']:<44} observed {truth['observed_us']:10.1f} us  graph {truth['graph_us']:10.1f} us  "
            f"rho {truth['rho']:6.3f} ({span})  {record['label']}")


def trace_all(done: list[Measured], bench: Bench, scratch: Path, limits: Limits, begin_s: float) -> None:
    """Traces of what was measured, each with its final manifest line."""
    bytes_left = limits.trace_bytes
    extra = sum(len(measured.item.traces) - 1 for measured in done)
    for place, measured in enumerate(done):
        started_s = time.perf_counter()
        waiting = len(done) - place
        spare_s = limits.seconds - (started_s - begin_s) - TRACE_S * waiting
        try:
            spare_bytes = bytes_left - waiting * 150_000 if extra else bytes_left
            runs = trace(measured, bench, scratch, spare_bytes, spare_s)
        except Exception:
            runs = []
            measured.record["error"] = failure(measured.item, "trace")["error"]
            print(f"  {measured.item.name}: trace FAILED\n{traceback.format_exc(limit=-3)}", flush=True)
        bytes_left -= sum(int(str(run.get("bytes", 0))) for run in runs)
        duration_s = round(time.perf_counter() - started_s, 2)
        record = {**measured.record, "traces": runs, "trace_s": duration_s}
        append(scratch / f"final-{measured.item.group}.jsonl", record)
        sizes = ", ".join(f"{run.get('mode')} {int(str(run.get('bytes', 0))) // 1000} kB" for run in runs)
        print(f"  traced {measured.item.name}: {sizes} in {duration_s} s", flush=True)


def run_group(items: list[Item], device: str, smoke: bool, seed: int, scratch: Path, limits: Limits) -> None:
    """Everything that one process does."""
    begin_s = time.perf_counter()
    bench = open_bench(device, smoke, seed)
    print(f"  ready after {time.perf_counter() - begin_s:.1f} s", flush=True)
    done = measure_all(items, bench, scratch, limits, begin_s)
    trace_all(done, bench, scratch, limits, begin_s)
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    peak = torch.cuda.max_memory_allocated() if bench.cuda else None
    append(scratch / f"machine-{items[0].group}.jsonl",
           {"machine": describe_machine(device), "date": stamp, "peak_device_bytes": peak})
