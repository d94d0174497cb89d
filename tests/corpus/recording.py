"""One recording: an item's truth, and right behind it one trace of it, in a process that no profiler has touched.

After its first use torch.profiler leaves CUPTI attached, which slows eager work by a quarter; so every trace is the
first of its process, and every truth stands before it.
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
from ab_timing import Alternation, BlockPlan, FormTimes, Round, paired_rho, percentile
from host_gauge import commonest_state, gauge_us, is_same_state, wait_for_state
from item import Forms, Item, TraceSpec, severity_of
from machine import describe_machine
from privacy import scrub
from tracing import TraceRun, record_trace

from bench import open_bench

Json = dict[str, object]


MOST_ROUNDS = 9
"""Rounds of blocks at most, to find `plan.alternations` of them in one state of the host."""
PATIENCE_S = 4.0
"""How long a trace waits for the state that its truth was measured in."""


@dataclass(frozen=True)
class Task:
    """What one process records."""

    item: Item
    spec: TraceSpec

    @property
    def name(self) -> str:
        """Unique in the corpus."""
        return f"{self.item.name}.{self.spec.suffix}"


def describe(task: Task) -> Json:
    """What is known before anything runs."""
    item = task.item
    return {
        "name": task.name,
        "item": item.name,
        "family": item.family,
        "size": item.size,
        "kind": item.kind,
        "group": item.group,
        "split": item.split,
        "mode": task.spec.mode,
        "annotated": task.spec.annotate,
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
        "block_us": {name: [round(us, 2) for us in form.block_us] for name, form in times.items()},
        "steps_per_block": {name: form.calls_per_block * forms.steps_per_call for name, form in times.items()},
        **extras,
    }


def expectation(item: Item, rho: float, truth: Json) -> Json:
    """Label, findings and severities that follow from the kind of the item and its measured rho."""
    severity = severity_of(rho)
    fault = bool(item.findings) and (item.always_fault or severity != "none")
    gap_us, observed_us = truth.get("without_gap_us"), truth["observed_us"]
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


def record(task: Task, device: str, smoke: bool, seed: int, plan: BlockPlan, scratch: Path) -> Json:
    """Build, time, trace; the manifest's line."""
    begin_s = time.perf_counter()
    bench = open_bench(device, smoke, seed)
    item, forms = task.item, task.item.build(bench)
    alternation = Alternation(forms.timed(), bench.sync, plan, forms.period_calls, forms.steps_per_call)
    rounds, state_us = steady_rounds(alternation, plan.alternations)
    times = alternation.times([r.block_us for r in rounds])
    file = scratch / f"{task.name}.json.gz"
    step = forms.traced or forms.observed
    before_us = wait_for_state(state_us, PATIENCE_S)
    run = record_trace(
        step, bench.sync, task.spec, bench.cuda, max(1, item.trace_steps), forms.steps_per_traced_call, file, gauge_us
    )
    gauges = [*(g for r in rounds for g in r.gauges_us), before_us, run.gauge_us]
    truth = truth_of(item, forms, times)
    return {
        **describe(task),
        **expectation(item, float(str(truth["rho"])), truth),
        "truth": truth,
        "trace": trace_entry(run),
        "host_gauge_us": [round(us, 3) for us in gauges],
        "host_is_steady": is_same_state(*gauges) and len(rounds) >= 2,
        "batch": forms.batch,
        "notes": dict(forms.notes),
        "seed": seed,
        "seconds": round(time.perf_counter() - begin_s, 2),
        "machine": describe_machine(device),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "peak_device_bytes": torch.cuda.max_memory_allocated() if bench.cuda else None,
    }


def steady_rounds(alternation: Alternation, wanted: int) -> tuple[list[Round], float]:
    """Rounds that were all in the host's commonest state, and that state's gauge; what there is after MOST_ROUNDS."""
    rounds: list[Round] = []
    while True:
        rounds.append(alternation.round(gauge_us))
        state_us = commonest_state([g for r in rounds for g in r.gauges_us])
        steady = [r for r in rounds if is_same_state(state_us, *r.gauges_us)]
        if len(steady) >= wanted or len(rounds) >= MOST_ROUNDS:
            return steady or rounds, state_us


def trace_entry(run: TraceRun) -> Json:
    """The manifest's words about a trace."""
    return {
        "file": run.file.name,
        "steps": run.steps,
        "traced_us": round(run.traced_us, 2),
        "bytes": run.file_bytes,
        "events": run.events,
        "kernels_per_step": round(run.events.get("kernel", 0) / run.steps, 2),
        "graph_launches_per_step": round(run.events.get("graph_launches", 0) / run.steps, 2),
    }


def failure(task: Task, stage: str) -> Json:
    """A manifest line for a recording that broke, without private paths."""
    lines = scrub(traceback.format_exc(limit=-4)).strip().splitlines()
    return {**describe(task), "error": {"stage": stage, "message": lines[-1][:500], "where": lines[-9:-1]}}


def append(path: Path, line: Json) -> None:
    """Add one JSON line."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, separators=(",", ":")) + "\n")


def line_of(line: Json) -> str:
    """A progress line: times and rho."""
    truth = line["truth"]
    assert isinstance(truth, dict)
    steady = "" if line["host_is_steady"] else "  host unsteady"
    return (
        f"{line['name']:<48} observed {truth['observed_us']:10.1f} us  graph {truth['graph_us']:10.1f} us  "
        f"rho {truth['rho']:6.3f}  {line['label']} in {line['seconds']} s{steady}"
    )
