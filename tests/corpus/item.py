"""What a corpus item is: its names, how it is built, and the forms of one piece of work that are timed and traced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bench import Bench

Step = Callable[[], None]
Mode = Literal["cpu+cuda", "cuda", "stack"]
Severity = Literal["none", "info", "warn", "page"]

INFO_RHO, WARN_RHO, PAGE_RHO = 0.05, 0.10, 0.15
"""Thresholds of the recoverable share rho (seed-claims.md 2.2, derived policy)."""


@dataclass(frozen=True)
class TraceSpec:
    """One trace to record. `annotate` false: no ProfilerStep and no other annotation in the file."""

    mode: Mode = "cpu+cuda"
    annotate: bool = True

    @property
    def suffix(self) -> str:
        """The part of the file name that tells the traces of one item apart."""
        return self.mode.replace("+", "_") + ("" if self.annotate else ".bare")


FULL = TraceSpec()
CUDA_ONLY = TraceSpec("cuda")
STACK = TraceSpec("stack")
BARE = TraceSpec("cpu+cuda", annotate=False)
BARE_CUDA = TraceSpec("cuda", annotate=False)


@dataclass(frozen=True)
class Forms:
    """One piece of work in the forms that are timed against each other.

    observed: what the trace shows. graph: the best full-graph form of the same work, host part included.
    eager: all of it without graphs, None where `observed` is that or where there is no such form.
    extras: other forms worth a time, by name. The same callable given twice is timed once.
    period_calls: the pattern of calls repeats after so many. steps_per_call: steps (tokens) in one call.
    traced: what is run under the profiler where that is not `observed`, with `steps_per_traced_call` steps in a call.
    """

    observed: Step
    graph: Step
    batch: int
    eager: Step | None = None
    extras: Mapping[str, Step] = field(default_factory=dict)
    period_calls: int = 1
    steps_per_call: int = 1
    traced: Step | None = None
    steps_per_traced_call: int = 1
    notes: Mapping[str, float | str] = field(default_factory=dict)

    def timed(self) -> dict[str, Step]:
        """The forms by name, `observed` first."""
        eager = {} if self.eager is None else {"eager": self.eager}
        return {"observed": self.observed, "graph": self.graph, **eager, **self.extras}


@dataclass(frozen=True)
class Item:
    """One labelled item. `findings` are what a detector should say if the loss is large enough to say anything;
    with `always_fault` they are expected at any rho (host gaps, thrash). `allowed` are no error if reported.
    `observed_is_eager`: the observed form has no graph at all, so `eager_us` is `observed_us`.
    `estimate_s`: assumed seconds of building and timing it, its traces not counted.
    """

    family: str
    size: str
    kind: str
    group: str
    build: Callable[[Bench], Forms]
    findings: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    always_fault: bool = False
    observed_is_eager: bool = False
    traces: tuple[TraceSpec, ...] = (FULL,)
    trace_steps: int = 3
    estimate_s: float = 2.3

    @property
    def name(self) -> str:
        """Family and size: unique in the corpus and the root of the file names."""
        return f"{self.family}-{self.size}"

    @property
    def split(self) -> Literal["fit", "holdout"]:
        """Decided by the name alone, before anything was measured or tuned."""
        digest = hashlib.sha256(f"{self.family}/{self.size}".encode()).digest()
        return "fit" if digest[0] % 2 == 0 else "holdout"


def severity_of(rho: float) -> Severity:
    """The largest severity that a recoverable share `rho` (0..1) justifies."""
    if rho >= PAGE_RHO:
        return "page"
    if rho >= WARN_RHO:
        return "warn"
    return "info" if rho >= INFO_RHO else "none"
