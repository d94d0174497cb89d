"""What the host did inside clean steps: launch calls, waits for the device, time from a wait to the next launch."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from replaywatch.contract.window import Phase
from replaywatch.sources.calls import COPY, LAUNCH, MEMSET, REPLAY, WAIT
from replaywatch.sources.steps import StepPlan
from replaywatch.sources.stepspans import StepSpan
from replaywatch.sources.timeline import DeviceTrack, HostThread
from replaywatch.sources.worksums import WorkSums

# A stretch without launches is a stall from this length on, and from this many typical stretches.
_SHORTEST_STALL_NS: Final = 500_000
_STALL_RATIO: Final = 20
_FETCH: Final = ("DtoH", "Device-to-Host")


def sum_host_work(
    track: DeviceTrack,
    plan: StepPlan,
    spans: list[StepSpan],
    threads: list[HostThread],
    texts: list[str],
    sums: dict[Phase | None, WorkSums],
) -> None:
    """Add the host's part of every clean step to the sums of its phase.

    Time that stays when everything is captured: from a wait for the device to the next launch, and long stretches in
    which no thread launches or waits, such as a wait for data.
    """
    own = set(track.correlation)
    fetches = _blocking_fetches(track, texts)
    for span in spans:
        if span.clean:
            step = plan.steps[span.index]
            # The last step's period begins with its first activity, not with what the host did before that.
            from_launch = span is spans[-1]
            for thread in threads:
                begin_ns = _first_launch(thread, step.start_ns, own) if from_launch else step.start_ns
                _sum_calls(thread, begin_ns, step.end_ns, own, fetches, sums[span.phase])
                _sum_counts(thread, step.start_ns, step.end_ns, sums[span.phase])
            sums[span.phase].host_stall_ns += _stalled_ns(threads, step.start_ns, step.end_ns)


def _stalled_ns(threads: list[HostThread], begin_ns: int, end_ns: int) -> int:
    """Time of long stretches between two launches of a step, or to the first of the next, without any wait in them."""
    calls: list[tuple[int, int, int]] = []
    for thread in threads:
        for i in range(bisect_left(thread.start, begin_ns), len(thread.start)):
            if thread.kind[i] <= WAIT:
                calls.append((thread.start[i], thread.end[i], thread.kind[i]))
            if thread.start[i] >= end_ns:
                break
    calls.sort()
    gaps: list[int] = []
    done_ns, waited = -1, True
    for start, end, kind in calls:
        if kind != WAIT and start > done_ns and not waited:
            gaps.append(start - done_ns)
        if start >= end_ns:
            break
        waited = kind == WAIT
        done_ns = max(done_ns, end)
    # A single stretch has nothing to be compared with: it is all there is between two launches.
    typical = sorted(gaps)[(len(gaps) - 1) // 2] if len(gaps) > 1 else 0
    limit = max(_SHORTEST_STALL_NS, _STALL_RATIO * typical)
    return sum(gap - typical for gap in gaps if gap > limit)


def _first_launch(thread: HostThread, begin_ns: int, own: set[int]) -> int:
    """Start of the first call from a moment on that put something on the device; the moment itself where none did."""
    for i in range(bisect_left(thread.start, begin_ns), len(thread.start)):
        if thread.kind[i] <= MEMSET and thread.correlation[i] in own:
            return thread.start[i]
    return begin_ns


def _blocking_fetches(track: DeviceTrack, texts: list[str]) -> set[int]:
    """Correlation ids of copies to pageable host memory: their calls return when the copy is done."""
    pageable = {n for n, text in enumerate(texts) if any(f in text for f in _FETCH) and "ageable" in text}
    if not pageable:
        return set()
    return {c for c, n in zip(track.correlation, track.name, strict=True) if n in pageable}


def _sum_counts(thread: HostThread, begin_ns: int, end_ns: int, sums: WorkSums) -> None:
    sums.cpu_ops += bisect_left(thread.cpu_ops, end_ns) - bisect_left(thread.cpu_ops, begin_ns)
    sums.python_calls += bisect_left(thread.python_calls, end_ns) - bisect_left(thread.python_calls, begin_ns)
    first, last = bisect_left(thread.start, begin_ns), bisect_left(thread.start, end_ns)
    sums.runtime_calls += sum(kind <= WAIT for kind in thread.kind[first:last])


def _sum_calls(
    thread: HostThread, begin_ns: int, end_ns: int, own: set[int], fetches: set[int], sums: WorkSums
) -> None:
    start, end, kinds, correlation = thread.start, thread.end, thread.kind, thread.correlation
    first = bisect_left(start, begin_ns)
    waited_until = -1
    sums.has_calls = sums.has_calls or first < len(start)
    for i in range(first, len(start)):
        kind = kinds[i]
        if start[i] >= end_ns and (waited_until < 0 or kind > MEMSET):
            if start[i] - end_ns > end_ns - begin_ns or waited_until < 0:
                break
            continue
        length = end[i] - start[i]
        if kind <= MEMSET and waited_until >= 0:
            sums.host_fixed_ns += max(0, min(start[i], waited_until + (end_ns - begin_ns)) - waited_until)
            waited_until = -1
        if start[i] >= end_ns:
            break
        if kind == LAUNCH and correlation[i] in own:
            sums.launches += 1
            sums.launch_call_ns += length
            sums.launch_calls.add(length)
        elif kind == REPLAY and correlation[i] in own:
            sums.graph_launches += 1
            sums.graph_launch_calls.add(length)
        elif kind == WAIT or (kind == COPY and (start[i] in thread.blocking or correlation[i] in fetches)):
            sums.sync_ns += length
            waited_until = end[i]
