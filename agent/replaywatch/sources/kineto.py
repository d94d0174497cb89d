"""Chrome traces as torch.profiler (Kineto) writes them, NVIDIA and HIP, become a `Timeline`.

Stamps are microseconds, as numbers or texts; traces whose stamps are nanoseconds are recognised by their size or, where
they count from a base, by launch calls and kernels that would otherwise all last half a millisecond and more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zlib import crc32

from replaywatch.contract.errors import UnknownSource
from replaywatch.contract.window import BlindSpot, Engine
from replaywatch.sources.calls import COPY, OTHER, call_kind, is_blocking_copy
from replaywatch.sources.eventstream import Args, Event, EventStream, Number
from replaywatch.sources.recording import Progress
from replaywatch.sources.settling import settle
from replaywatch.sources.stampunit import MICROSECOND, divide_times, lasts_too_long, scale_of
from replaywatch.sources.timeline import (
    KERNEL,
    LONGEST_NS,
    MEMCPY,
    MEMFILL,
    DeviceTrack,
    HostThread,
    Timeline,
)
from replaywatch.sources.tracemeta import apply_metadata

_CPU_OP: Final = 10
_PYTHON: Final = 11
_RUNTIME: Final = 12
_ANNOTATION: Final = 13
_CATEGORIES: Final = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMFILL,
    "Memset": MEMFILL,
    "cpu_op": _CPU_OP,
    "Operator": _CPU_OP,
    "python_function": _PYTHON,
    "cuda_runtime": _RUNTIME,
    "cuda_driver": _RUNTIME,
    "Runtime": _RUNTIME,
    "runtime": _RUNTIME,
    "hip_runtime": _RUNTIME,
    "user_annotation": _ANNOTATION,
}
_NO_ARGS: Final = Args()
_LARGEST_NS: Final = 8 * 10**18
_ENGINE_MARKS: Final[tuple[tuple[str, Engine], ...]] = (
    ("vllm/", "vllm"),
    ("sglang/", "sglang"),
    ("tensorrt_llm/", "trtllm"),
    ("text_generation_server/", "tgi"),
    ("transformers/generation", "transformers"),
)
_KERNEL_MARKS: Final[tuple[tuple[str, Engine], ...]] = (
    ("vllm::", "vllm"),
    ("sglang", "sglang"),
    ("tensorrt_llm::", "trtllm"),
)


def read_kineto(path: Path, progress: Progress | None = None) -> Timeline:
    """The timeline of a Chrome trace, plain or gzip.

    Raises: UnreadableSource when it is damaged or incomplete, UnknownSource when it holds no trace events.
    """
    stream = EventStream(path, progress)
    intake = _Intake()
    entries = 0
    for events in stream:
        entries += len(events)
        intake.take(events)
    if entries and not intake.saw_phase:
        raise UnknownSource(f"{path} is JSON, but none of its entries is a trace event; name a torch.profiler trace")
    timeline = intake.finish()
    timeline.dropped += stream.refused
    settle(timeline)
    _guess_from_kernels(timeline)
    apply_metadata(timeline, stream.metadata)
    timeline.gaps_are_evidence = timeline.method != "roctracer"
    if not any(len(track) for track in timeline.devices.values()):
        timeline.blind.append(_NO_DEVICE_EVENTS)
    return timeline


_NO_DEVICE_EVENTS: Final = BlindSpot(
    "kernels",
    "the trace has no GPU events; record with ProfilerActivity.CUDA while the GPU works, and with no other profiler "
    "attached to the process",
)


class _Intake:
    """Takes events into a timeline, chunk by chunk."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.saw_phase = False
        self._scale: int | None = None
        self._whole_stamps = True
        self._kinds: dict[str, int] = {}
        self._open: dict[tuple[object, object], list[Event]] = {}
        self._python_checked = 0
        self._tracks: dict[int | float | str | None, DeviceTrack] = {}
        self._names = self.timeline.names.ids
        self._host = HostThread(0, "")
        self._host_pid: object = self
        self._host_tid: object = self

    def take(self, events: list[Event]) -> None:
        """Take one chunk of events."""
        scale = self._scale or self._sniff_scale(events)
        categories, other, activity, call = _CATEGORIES, self._take_other, self._take_activity, self._take_host
        dropped = 0
        for event in events:
            code = categories.get(event.cat)  # type: ignore[arg-type]
            if code is None or event.ph != "X":
                if event.ph == "B" or event.ph == "E":
                    other(event, code, scale)
                continue
            try:
                start = round(event.ts * scale)  # type: ignore[operator]
                length = round(event.dur * scale)  # type: ignore[operator]
            except (TypeError, OverflowError, ValueError):
                dropped += 1
                continue
            if length < 0 or length > LONGEST_NS or not -_LARGEST_NS < start < _LARGEST_NS:
                dropped += 1
            elif code <= MEMFILL:
                activity(event, code, start, length)
            else:
                call(event, code, start, length)
        if events and not self.saw_phase:
            self.saw_phase = any(event.ph for event in events)
        self.timeline.dropped += dropped

    def _take_other(self, event: Event, code: int | None, scale: int) -> None:
        """Begin and end events: only those of annotations matter."""
        if code == _ANNOTATION or event.cat is None:
            self._take_pair(event, scale)

    def _take_host(self, event: Event, code: int, start: int, length: int) -> None:
        host = self._host
        if event.tid != self._host_tid or event.pid != self._host_pid:
            host = self._host = self.timeline.thread(_process(event.pid), str(event.tid))
            self._host_pid, self._host_tid = event.pid, event.tid
        if code == _RUNTIME:
            host.runtime_calls.append(start)
            name = event.name or ""
            kind = self._kinds.get(name)
            if kind is None:
                kind = self._kinds[name] = call_kind(name)
            if kind != OTHER:
                _add_call(host, kind, name, start, start + length, event.args)
        elif code == _CPU_OP:
            host.cpu_ops.append(start)
            if event.name and event.name.startswith("ProfilerStep#"):
                self._annotate(event, start, length)
        elif code == _PYTHON:
            host.python_calls.append(start)
            if self._python_checked >= 0:
                self._check_python(event.name or "")
        else:
            self._annotate(event, start, length)

    def _sniff_scale(self, events: list[Event]) -> int:
        stamps = [e.ts for e in events if e.ts is not None and e.cat in _CATEGORIES]
        self._scale = scale_of(stamps) if stamps else None
        return self._scale or MICROSECOND

    def _take_activity(self, event: Event, kind: int, start: int, length: int) -> None:
        args = event.args or _NO_ARGS
        if length == 0 and start == 0:
            self.timeline.dropped += 1
            return
        device = args.device if args.device is not None else event.pid
        track = self._tracks.get(device)
        if track is None:
            track = self._tracks[device] = self.timeline.track(0, _whole(device))
        stream = args.stream if args.stream is not None else event.tid
        name = event.name or ""
        number = self._names.get(name)
        track.start.append(start)
        track.end.append(start + length)
        track.correlation.append(_whole(args.correlation))
        track.stream.append(_whole(stream))
        track.size.append(_whole(args.bytes) if kind != KERNEL else 0)
        track.name.append(self.timeline.names.id(name) if number is None else number)
        track.kind.append(kind)
        track.graph.append(_whole(args.graph_id) > 0 or _whole(args.graph_node_id) > 0)
        if self._whole_stamps and (event.ts.__class__ is float or event.dur.__class__ is float):
            self._whole_stamps = False

    def _annotate(self, event: Event, start: int, length: int) -> None:
        name = event.name or ""
        if name.startswith("Optimizer.step"):
            self.timeline.trains = True
        self.timeline.annotate(name, start, start + length, _process(event.pid), str(event.tid))

    def _take_pair(self, event: Event, scale: int) -> None:
        """Begin and end events of one thread close in the order of a stack."""
        self.saw_phase = True
        stack = self._open.setdefault((event.pid, event.tid), [])
        if event.ph == "B":
            stack.append(event)
            return
        if not stack:
            self.timeline.dropped += 1
            return
        begin = stack.pop()
        first, last = _stamp(begin.ts, scale), _stamp(event.ts, scale)
        if first is None or last is None or not 0 <= last - first <= LONGEST_NS:
            self.timeline.dropped += 1
            return
        self._annotate(begin, first, last - first)

    def _check_python(self, name: str) -> None:
        """Recognise the engine by the files of its Python calls, within the first many."""
        self._python_checked += 1
        for mark, engine in _ENGINE_MARKS:
            if mark in name:
                self.timeline.engine = engine
                self._python_checked = -1
                return
        if self._python_checked > 50_000:
            self._python_checked = -1

    def finish(self) -> Timeline:
        """The filled timeline, in nanoseconds."""
        timeline = self.timeline
        threads = timeline.threads
        timeline.has_cpu_events = any(len(t.cpu_ops) or len(t.python_calls) for t in threads)
        if self._scale == MICROSECOND and self._whole_stamps and lasts_too_long(timeline):
            divide_times(timeline, 1000)
        if any(name.startswith("hip") for name in self._kinds):
            timeline.method = "roctracer"
        return timeline


def _add_call(host: HostThread, kind: int, name: str, start: int, end: int, args: Args | None) -> None:
    host.start.append(start)
    host.end.append(end)
    host.kind.append(kind)
    host.correlation.append(_whole(args.correlation) if args is not None else 0)
    if kind == COPY and is_blocking_copy(name):
        host.blocking.add(start)


def _process(pid: int | str | None) -> int:
    """A number for a process: its id, or a negative one made of its name."""
    if isinstance(pid, int):
        return pid
    return 0 if pid is None else -1 - crc32(pid.encode())


def _whole(value: int | float | str | None) -> int:
    """A number of any spelling as an integer of 63 bits; 0 where it is none."""
    if value is None:
        return 0
    if not isinstance(value, int):
        try:
            value = int(float(value))
        except (TypeError, ValueError, OverflowError):
            return 0
    return value if -_LARGEST_NS < value < _LARGEST_NS else 0


def _stamp(value: Number, scale: int) -> int | None:
    """Nanoseconds of a stamp; None where it is missing or no number."""
    try:
        return round(value * scale)  # type: ignore[operator]
    except (TypeError, ValueError, OverflowError):
        return None


def _guess_from_kernels(timeline: Timeline) -> None:
    """Engine and training, where names of kernels tell; torch where host operators were recorded."""
    for text in timeline.names.texts:
        if timeline.engine == "unknown":
            timeline.engine = next((engine for mark, engine in _KERNEL_MARKS if mark in text), "unknown")
        lowered = text[:300].lower()
        if "backward" in lowered or "adamfunctor" in lowered or "fused_adam" in lowered:
            timeline.trains = True
    if timeline.engine == "unknown" and timeline.has_cpu_events:
        timeline.engine = "torch"
