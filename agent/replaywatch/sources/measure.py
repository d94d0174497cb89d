"""A timeline and its steps become windows: one per process, device and phase."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import Fingerprint
from replaywatch.contract.window import BlindSpot, Engine, Phase, Window, Workload
from replaywatch.sources.annotations import engine_label
from replaywatch.sources.calls import CAPTURE_BEGIN, CAPTURE_END, DESTROY, INSTANTIATE
from replaywatch.sources.devicesweep import DeviceSweep
from replaywatch.sources.hostwork import sum_host_work
from replaywatch.sources.recording import Recording, RecordingKind, StepPicture
from replaywatch.sources.steppicture import draw_step
from replaywatch.sources.steps import StepPlan, plan_steps
from replaywatch.sources.stepspans import StepSpan, step_spans
from replaywatch.sources.timeline import (
    KERNEL,
    MEMCPY,
    MEMFILL,
    WHOLE_GRAPH,
    DeviceTrack,
    HostThread,
    Timeline,
    launch_starts,
    launching_threads,
)
from replaywatch.sources.worksums import WorkSums

_NO_CALLS: Final = BlindSpot(
    "launches",
    "the trace has no launch calls, so host time and replays are known only from the device's side; "
    "record with runtime events (ProfilerActivity.CPU as well as CUDA, or nsys --trace=cuda)",
)
_HIP_GAPS: Final = BlindSpot(
    "gaps", "HIP tracers often report kernels without the gaps between them; gaps on the device are no evidence here"
)


def measure(timeline: Timeline, kind: RecordingKind, source: str) -> Recording:
    """All windows of a settled timeline, with their fingerprints and a picture of a typical step each."""
    windows: list[Window] = []
    fingerprints: dict[str, Fingerprint] = {}
    pictures: dict[str, StepPicture] = {}
    tracks = [t for t in timeline.devices.values() if KERNEL in t.kind or WHOLE_GRAPH in t.kind]
    for track in sorted(tracks, key=lambda t: (t.process, t.device)):
        measured = _Measured(timeline, track, source)
        fingerprint = measured.fingerprint()
        fingerprints[fingerprint.id] = fingerprint
        for phase in measured.sums:
            window = measured.window(phase, fingerprint.id)
            windows.append(window)
            picture = measured.picture(phase)
            if picture is not None:
                pictures[window.workload.key] = picture
    if not windows:
        windows.append(_blind_window(timeline, source))
    return Recording(kind=kind, source=source, windows=tuple(windows), fingerprints=fingerprints, pictures=pictures)


def _blind_window(timeline: Timeline, source: str) -> Window:
    blind = tuple(timeline.blind) or (
        BlindSpot("kernels", "the trace has copies but no kernels; record while the GPU computes"),
    )
    workload = Workload(name=source, rank=timeline.rank, engine=timeline.engine, model_name=timeline.model_name)
    starts = [t.start[0] for t in timeline.threads if len(t.start)]
    start_ns = max(0, timeline.base_ns + min(starts, default=0))
    return Window(workload=workload, start_ns=start_ns, end_ns=start_ns, origin="trace", blind=blind)


class _Measured:
    """One device track with its steps and sums."""

    def __init__(self, timeline: Timeline, track: DeviceTrack, source: str) -> None:
        self.timeline, self.track, self.source = timeline, track, source
        self.threads: list[HostThread] = launching_threads(timeline, track)
        self.plan: StepPlan = plan_steps(timeline, track)
        self.spans: list[StepSpan] = step_spans(track, self.plan, self.threads)
        self.sums: dict[Phase | None, WorkSums] = defaultdict(WorkSums)
        self._sum()

    def _sum(self) -> None:
        names, track = self.timeline.names.texts, self.track
        launches = sorted(launch_starts(self.threads))
        for span in self.spans:
            _sum_step(span, self.sums[span.phase])
        _sum_activities(track, self.plan, self.spans, self.sums)
        DeviceSweep(track, self.spans, launches, names, self.sums).run()
        _sum_replays(track, self.plan, self.spans, self.sums)
        sum_host_work(track, self.plan, self.spans, self.threads, names, self.sums)
        for sums in self.sums.values():
            if not sums.has_calls:
                sums.launches, sums.graph_launches = sums.eager_kernels, sums.replays.count

    def window(self, phase: Phase | None, fingerprint_id: str) -> Window:
        """The window of one phase."""
        timeline, sums = self.timeline, self.sums[phase]
        calls = Counter(k for thread in self.threads for k in thread.kind)
        only_phase = len(self.sums) == 1
        replays = len({c for c, g in zip(self.track.correlation, self.track.graph, strict=True) if g})
        captures = _capture_spans(timeline, self.track.process)
        base = timeline.base_ns
        return Window(
            workload=self._workload(phase),
            start_ns=max(0, base + self.track.start[0]),
            end_ns=max(0, base + max(self.track.end)),
            origin="trace",
            fingerprint_id=fingerprint_id,
            dispatch=sums.dispatch(
                replays=replays if only_phase else sums.replays.count,
                captures=captures.count if captures else 0,
                instantiations=calls[INSTANTIATE],
                destroys=calls[DESTROY],
                failed_calls=dict(timeline.failed_calls),
            ),
            timing=sums.timing(captures, _call_lengths(timeline, self.track.process, INSTANTIATE)),
            traced=sums.traced(timeline.method, timeline.has_cpu_events, timeline.gaps_are_evidence, timeline.dropped),
            blind=self._blind_spots(),
        )

    def _workload(self, phase: Phase | None) -> Workload:
        timeline = self.timeline
        process = self.track.process
        pid = process & 0xFFFFFF if timeline.method == "nsys" else process
        return Workload(
            name=self.source,
            pid=pid if 0 < pid < 2**31 else None,
            rank=timeline.rank,
            engine=self._engine(),
            model_name=timeline.model_name,
            phase=phase or ("train" if timeline.trains else None),
            gpu_index=self.track.device,
        )

    def _engine(self) -> Engine:
        """The engine that names the steps, or the one that the trace shows otherwise."""
        labels = (engine_label(step.name) for step in self.plan.steps)
        return next((label.engine for label in labels if label), self.timeline.engine)

    def _blind_spots(self) -> tuple[BlindSpot, ...]:
        spots = list(self.timeline.blind)
        if not self.threads:
            spots.append(_NO_CALLS)
        if not self.timeline.gaps_are_evidence:
            spots.append(_HIP_GAPS)
        return tuple(spots)

    def fingerprint(self) -> Fingerprint:
        """What the track ran on."""
        return self.timeline.fingerprints.get(self.track.device) or Fingerprint(engine=self._engine())

    def picture(self, phase: Phase | None) -> StepPicture | None:
        """The clean step of median length, drawn; None where there is none."""
        clean = sorted((s for s in self.spans if s.clean and s.phase == phase), key=lambda s: s.period_ns)
        if not clean:
            return None
        return draw_step(self.timeline, self.track, self.plan, clean[len(clean) // 2])


def _sum_step(span: StepSpan, sums: WorkSums) -> None:
    if span.counts:
        sums.modes[span.mode] += 1
        if span.batch_size is not None:
            sums.batch_sizes[span.batch_size] += 1
            if span.mode != "full":
                sums.eager_batch_sizes[span.batch_size] += 1
    if not span.clean:
        sums.skipped_steps += 1
        return
    sums.steps += 1
    sums.span_ns += span.period_ns
    sums.span_sq_ns2 += float(span.period_ns) ** 2
    sums.periods.add(span.period_ns)
    sums.periods_by_mode.setdefault(span.mode, type(sums.periods)()).add(span.period_ns)
    sums.kernel_ns += span.kernel_ns
    sums.graph_kernels += span.graph_kernels
    sums.eager_kernels += span.kernels - span.graph_kernels
    sums.graph_kernel_ns += span.graph_ns
    sums.eager_kernel_ns += span.kernel_ns - span.graph_ns


def _sum_activities(
    track: DeviceTrack, plan: StepPlan, spans: list[StepSpan], sums: dict[Phase | None, WorkSums]
) -> None:
    """Copies, kernels by stream and kernels without a launch, inside clean steps."""
    clean = {span.index: sums[span.phase] for span in spans if span.clean}
    for i, index in enumerate(plan.member):
        own = clean.get(index)
        if own is None:
            continue
        kind = track.kind[i]
        length = track.end[i] - track.start[i]
        if kind in (MEMCPY, MEMFILL):
            own.copies += 1
            own.copy_ns += length
            continue
        stream = track.stream[i]
        own.by_stream[stream] += 1
        own.ns_by_stream[stream] += length
        if track.launched_ns[i] < 0:
            own.unmatched_kernels += 1


def _sum_replays(track: DeviceTrack, plan: StepPlan, spans: list[StepSpan], sums: dict[Phase | None, WorkSums]) -> None:
    """Device time of every replay that lies in a clean step."""
    clean = {span.index: sums[span.phase] for span in spans if span.clean}
    extent: dict[int, tuple[int, int, int]] = {}
    for i, member in enumerate(track.graph):
        if member:
            begin, end, index = extent.get(track.correlation[i], (track.start[i], track.end[i], plan.member[i]))
            extent[track.correlation[i]] = (begin, max(end, track.end[i]), index)
    for begin, end, index in extent.values():
        own = clean.get(index)
        if own is not None:
            own.replays.add(end - begin)


def _call_lengths(timeline: Timeline, process: int, wanted: int) -> Histogram | None:
    """Host time inside all calls of one kind."""
    lengths = [
        end - start
        for thread in timeline.threads
        if thread.process == process
        for start, end, kind in zip(thread.start, thread.end, thread.kind, strict=True)
        if kind == wanted
    ]
    return Histogram.of(lengths) if lengths else None


def _capture_spans(timeline: Timeline, process: int) -> Histogram | None:
    """How long captures took, from begin to end on one thread."""
    lengths: list[int] = []
    for thread in timeline.threads:
        if thread.process != process:
            continue
        begun = -1
        for start, end, kind in zip(thread.start, thread.end, thread.kind, strict=True):
            if kind == CAPTURE_BEGIN:
                begun = start
            elif kind == CAPTURE_END and begun >= 0:
                lengths.append(end - begun)
                begun = -1
    return Histogram.of(lengths) if lengths else None
