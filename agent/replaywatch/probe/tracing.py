"""When kernels are traced: a short burst once work begins, then a short stretch now and then, and never in the way.

Only where somebody asked for it: once CUPTI has recorded kernels it stays attached, and decode steps on graphs take 5
to 10 % longer for as long as the process lives (H200, driver 580.159.04, CUPTI 13.0; docs/overhead.md). Leaving would
take cuptiFinalize, after which work on graphs fails (tests/gpu/detach.py).
The tracer itself is `replaywatch.probe.tracer`, loaded only when the first stretch is due. It is not started while
anything is captured, while a profiler is being set up or runs, or where a daemon may start Kineto behind Python's back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, Protocol

from replaywatch.probe.settings import Settings
from replaywatch.probe.sight import Sight

SIGNAL = "kernels"
GRAPH_SIGNAL = "graph trace"
# The first stretches after work began, so that a stable fault is seen within a minute. Seconds.
BURST_S = (3.0, 12.0, 25.0)
# A stretch with fewer kernels than this says nothing, and does not count as part of the burst.
MIN_KERNELS = 20
RETRY_S = 10.0
# Fields of TracedWork, and what the tracer's calibration calls them.
CALIBRATED = (
    ("calibrated_launch_ns", "launch_host_ns"),
    ("calibrated_graph_launch_ns", "graph_launch_host_ns"),
    ("calibrated_graph_gap_ns", "in_graph_gap_ns"),
)
# Graph records come all the time; a stretch only takes them.
GRAPH_STRETCH_MS = 1.0
INSTEAD_OF_KERNELS = "graphs are traced as a whole (REPLAYWATCH_PROBE_GRAPH_TRACE), which excludes their kernels"
CALIBRATION_MS = 60.0  # the stretch in which the gap is read (kCalibrationWindowMs)
OFF = (
    "kernels are not traced, because replays would take 5 to 10 % longer from then on; to see them, start one replica "
    "with REPLAYWATCH_PROBE_KERNELS=1, or analyze a short torch.profiler trace"
)
AFTER_PROFILER = (
    "torch.profiler was used in this process; windows after it have cost later profiles their kernels, "
    "so there are none until the process is started again"
)


class Tracer(Protocol):
    """What the tracer offers.

    `run_window` traces for some milliseconds, blocking the calling thread only, and returns what it saw:
    ``{"traced": fields of TracedWork, "timing": histograms of Timing, "blind": [[signal, reason], ...]}`` in the wire
    form, or None where nothing came. `pause` ends a running window and returns once CUPTI is left alone.
    """

    def run_window(self, duration_ms: float) -> Mapping[str, Any] | None:
        """Trace once."""

    def pause(self) -> bool:
        """Leave CUPTI alone from now on."""

    def calibrate(self) -> Mapping[str, int]:
        """What launches cost here, in nanoseconds; see `replaywatch.probe.tracer`. Raises: what says why not."""

    def enable_graph_level(self) -> None:
        """Graph records instead of kernels, for the life of the process. Raises: what says why not."""

    @property
    def live(self) -> bool:
        """Whether a window records now."""

    def mark_step(self, unix_ns: int, mode: str | None = None) -> None:
        """A step begins; only worth telling while a window records."""


class Tracing:
    """Decides when to trace, on the helper thread, and steps aside for profilers, on theirs."""

    def __init__(
        self, settings: Settings, sight: Sight, load: Callable[[], Tracer], capturing: Callable[[], bool]
    ) -> None:
        self._settings, self._sight, self._load, self._capturing = settings, sight, load, capturing
        self.opened: list[bool] = []  # holds something once there is a tracer; always the same list
        self.reset()

    def reset(self) -> None:
        """Start over; a forked child has neither tracer nor profiler of its parent."""
        self._lock = threading.Lock()
        # A child forked from a process that traces cannot use CUDA, nor the native tracer's threads.
        self._tried = getattr(self, "_tracer", None) is not None
        self._tracer: Tracer | None = None
        self.opened.clear()
        self._graph_trace_tried = self._traces_graphs = False
        self._profilers = 0
        self._profiled = False
        self._paused = False
        self._work_since_ns = 0
        self._burst = 0
        self._next_ns = 0
        self._calibrated = False
        self._launch_costs: dict[str, int] = {}  # until a stretch takes them along
        self.windows = 0
        self.traced_ns = 0
        self.results: list[Mapping[str, Any]] = []
        if not self._settings.kernels:
            self._sight.blind(SIGNAL, OFF)
        elif _daemon_may_profile():
            self._sight.blind(SIGNAL, "KINETO_USE_DAEMON is set: a daemon may start Kineto at any time, so it has way")
        if self._settings.graph_trace:
            self._sight.blind(GRAPH_SIGNAL, "torch has not initialised CUDA yet")

    @property
    def _traces(self) -> bool:
        return self._settings.kernels or self._traces_graphs

    @property
    def _signal(self) -> str:
        return GRAPH_SIGNAL if self._traces_graphs else SIGNAL

    def work_began(self, now_ns: int) -> None:
        """The device is in use: plan the burst, counted from now."""
        if not self._work_since_ns:
            self._work_since_ns = now_ns
            self._next_ns = now_ns + int(BURST_S[0] * 1e9)

    def close(self) -> None:
        """End the tracer's own thread, if it has one."""
        stop = getattr(self._tracer, "stop", None)
        self._tracer, self._tried = None, True
        self.opened.clear()
        if stop is not None:
            stop()

    def again(self, now_ns: int) -> None:
        """Replays began after the burst had been spent on loading and warm-up: burst once more."""
        self._work_since_ns, self._burst = now_ns, 0
        self._next_ns = now_ns + int(BURST_S[0] * 1e9)

    def due(self, now_ns: int) -> bool:
        """Whether a stretch should run now."""
        return (
            bool(self._work_since_ns)
            and now_ns >= self._next_ns
            and self._traces
            and not _daemon_may_profile()
            and not self._profilers
            and not self._profiled
            and not self._capturing()
        )

    def run(self, now_ns: int, stretch: int, duration_ms: float | None = None) -> None:
        """Trace once, on the calling thread, and plan the next stretch."""
        # Graphs are recorded all the time, so that taking their records more rarely would save nothing.
        every_s = self._settings.window_seconds if self._traces_graphs else self._settings.trace_every_seconds * stretch
        self._next_ns = now_ns + int(every_s * 1e9)
        tracer = self._tracer or self._open()
        if tracer is None:
            return
        with self._lock:
            if self._profilers or self._profiled:
                return
            self._calibrate(tracer)
            if duration_ms is None:
                duration_ms = GRAPH_STRETCH_MS if self._traces_graphs else self._settings.trace_ms
            found = tracer.run_window(duration_ms)
        self._took(found, now_ns, duration_ms)

    def _calibrate(self, tracer: Tracer) -> None:
        """Measure once what launches cost here, before the first stretch."""
        if self._calibrated or self._traces_graphs or self._capturing():
            return
        self._calibrated = True
        try:
            costs = tracer.calibrate()
        except Exception as error:  # the probe's border: no context, a call that failed
            self._sight.blind("launch costs", f"launches could not be calibrated: {error}")
            return
        self._launch_costs = {field: costs[name] for field, name in CALIBRATED if name in costs}
        self._count_stretch(CALIBRATION_MS)

    def _count_stretch(self, duration_ms: float) -> None:
        self.windows += 1
        self.traced_ns += int(duration_ms * 1e6)

    def _took(self, found: Mapping[str, Any] | None, now_ns: int, duration_ms: float) -> None:
        self._count_stretch(duration_ms)
        reasons = (found or {}).get("blind", ())
        if found is not None and not reasons:
            self._sight.clear(self._signal)
        for _, reason in reasons:
            self._sight.blind(self._signal, reason)
        if found is not None and len(self.results) < 8:
            self.results.append(self._with_launch_costs(found))
        if self._burst >= len(BURST_S) or self._traces_graphs:
            return
        kernels = ((found or {}).get("traced") or {}).get("total_kernels", 0)
        if kernels < MIN_KERNELS:
            self._next_ns = min(self._next_ns, now_ns + int(RETRY_S * 1e9))
            return
        self._burst += 1
        if self._burst < len(BURST_S):
            self._next_ns = min(self._next_ns, self._work_since_ns + int(BURST_S[self._burst] * 1e9))

    def _with_launch_costs(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """A result with what was calibrated before it; told once, beside work that was traced."""
        if not found.get("traced"):
            return found
        costs, self._launch_costs = self._launch_costs, {}
        return {**found, "traced": {**found["traced"], **costs}}

    def _open(self) -> Tracer | None:
        if self._tried:
            return None
        self._tried = True
        try:
            self._tracer = self._load()
            self.opened.append(True)
        except Exception as error:  # the probe's border: no tracer, no CUPTI, an unknown version
            self._sight.blind(SIGNAL, f"no tracer: {error}")
            return None
        self._sight.clear(SIGNAL)
        return self._tracer

    # On the thread that initialises CUDA.

    def begin_graph_trace(self) -> None:
        """Trace graphs as a whole from now on, or say why not; once. Only before CUDA is initialised."""
        if not self._graph_trace_tried:  # asked before the lock, which is held while a stretch is recorded
            self._try_graph_trace()

    def _try_graph_trace(self) -> None:
        with self._lock:
            if self._graph_trace_tried:
                return
            self._graph_trace_tried = True
            try:
                self._enable_graph_trace()
            except Exception as error:  # the probe's border: no tracer, CUDA initialised, an old CUPTI
                self._sight.blind(GRAPH_SIGNAL, f"graphs are not traced as a whole: {error}")

    def _enable_graph_trace(self) -> None:
        if self._profilers or self._profiled:
            raise RuntimeError("torch.profiler came first, and CUPTI is its own")
        tracer = self._load()
        tracer.enable_graph_level()
        self._tracer, self._tried, self._traces_graphs = tracer, True, True
        self.opened.append(True)
        self._sight.clear(GRAPH_SIGNAL)
        self._sight.blind(SIGNAL, INSTEAD_OF_KERNELS)

    # On the threads that step.

    def mark(self, mode: str) -> None:
        """A step begins, as an engine tells it; costs nothing while no stretch is recorded."""
        tracer = self._tracer
        if tracer is not None and getattr(tracer, "live", False):
            tracer.mark_step(time_ns(), mode)

    # On the threads that profile.

    def profiler_begins(self) -> None:
        """A profiler is about to take CUPTI: end a running stretch, and start none any more."""
        self._profilers += 1
        if not self._traces:
            return
        self._sight.blind(self._signal, "torch.profiler runs; CUPTI is its own until it ends")
        if self._tracer is not None and not self._paused:
            self._paused = True
            self._tracer.pause()
        if self._lock.acquire(timeout=1.0):  # the running stretch has returned
            self._lock.release()

    def profiler_ended(self) -> None:
        """A profiler is done; CUPTI stays with whoever profiles next.

        Windows go on working after a profile, but of the profiles after them on an H200 112 of 116 lacked the kernels
        of graphs, while the first ones of each process were complete (docs/data/soak-2026-11-30.json). Why is unknown;
        tests/gpu/after_profiles.py does not show it, whichever kind of records is switched on first.
        """
        if not self._profilers:
            return
        self._profilers -= 1
        self._profiled = not self._profilers
        if self._profiled and self._traces:
            self._sight.blind(self._signal, AFTER_PROFILER)

    def take(self) -> tuple[list[Mapping[str, Any]], int, int]:
        """Results, stretches and traced nanoseconds since the last call."""
        results, self.results = self.results, []
        windows, self.windows = self.windows, 0
        traced_ns, self.traced_ns = self.traced_ns, 0
        return results, windows, traced_ns


def _daemon_may_profile() -> bool:
    """Whether a daemon may start Kineto. Source: Kineto asks whether the variable is set, and takes 0 as well."""
    return "KINETO_USE_DAEMON" in os.environ


def load_tracer() -> Tracer:
    """The native tracer. Raises: whatever says why there is none, in words for a person."""
    from importlib import import_module

    try:
        module = import_module("replaywatch.probe.tracer")
    except ModuleNotFoundError:
        raise RuntimeError("this installation has no native tracer") from None
    tracer: Tracer = module.open_tracer()
    return tracer
