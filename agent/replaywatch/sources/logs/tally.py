"""Counts what a log says of one part of an engine until a window closes."""

from __future__ import annotations

from collections import Counter

from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.window import (
    BlindSpot,
    Dispatch,
    GraphMemory,
    Mode,
    Observation,
    Timing,
    Window,
    Workload,
)
from replaywatch.sources.logs.privacy import safe

_MAX_SIZES = 64
_MAX_OBSERVATIONS = 1000


class Tally:
    """Everything countable of one phase or component, on one rank. Times are Unix nanoseconds."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.batch_sizes: Counter[int] = Counter()
        self.eager_batch_sizes: Counter[int] = Counter()
        self.sampled_sizes: Counter[int] = Counter()
        self.captures: Counter[str] = Counter()
        self.updates: Counter[str] = Counter()
        self.failed_calls: Counter[str] = Counter()
        self.real_tokens: int | None = None
        self.padded_tokens: int | None = None
        self.replays: int | None = None
        self.live_graphs: int | None = None
        self.capture = HistogramBuilder()
        self.step_period = HistogramBuilder()
        self.pool_bytes: int | None = None
        self.estimated_bytes: int | None = None
        self.bytes_by_owner: dict[str, int] = {}
        self.observations: Counter[tuple[str, str, str | None]] = Counter()
        self.blind: dict[BlindSpot, None] = {}

    def step(self, mode: Mode, times: int = 1, *, size: int | None = None, fallback: str | None = None) -> None:
        """Count steps of a mode; `size` in sequences where it is known, `fallback` why they were not full replays."""
        self.steps[mode] += times
        if fallback is not None:
            self.fallbacks[fallback] += times
        if size is not None and size > 0:
            self.batch_sizes[size] += times
            if mode == "eager":
                self.eager_batch_sizes[size] += times

    def tokens(self, real: int, padded: int, times: int) -> None:
        """Count tokens asked for and tokens processed."""
        self.real_tokens = (self.real_tokens or 0) + real * times
        self.padded_tokens = (self.padded_tokens or 0) + padded * times

    def captured(self, graphs: int, duration_ns: int | None = None) -> None:
        """Count captures that succeeded; a duration covers all of them and is spread evenly."""
        self.captures["ok"] += graphs
        if duration_ns is not None and graphs > 0:
            self.capture.add(duration_ns // graphs, graphs)

    def observe(self, kind: str, detail: str, where: str | None, times: int = 1) -> None:
        """Count an observation; its detail is cut and masked here."""
        key = (kind, safe(detail), where)
        if key in self.observations or len(self.observations) < _MAX_OBSERVATIONS:
            self.observations[key] += times

    @property
    def is_empty(self) -> bool:
        """Whether there is anything to say."""
        return self._content() == _NOTHING and not self.observations and not self.blind

    def _content(self) -> tuple[Dispatch, Timing, GraphMemory]:
        return self._dispatch(), self._timing(), self._memory()

    def _dispatch(self) -> Dispatch:
        return Dispatch(
            steps=dict(self.steps) or None,
            fallbacks=dict(self.fallbacks) or None,
            batch_sizes=fold_sizes(self.batch_sizes or self.sampled_sizes),
            eager_batch_sizes=fold_sizes(self.eager_batch_sizes),
            real_tokens=self.real_tokens,
            padded_tokens=self.padded_tokens,
            replays=self.replays,
            captures={k: n for k, n in self.captures.items() if n} or None,
            updates=dict(self.updates) or None,
            failed_calls=dict(self.failed_calls) or None,
            live_graphs=self.live_graphs,
        )

    def _timing(self) -> Timing:
        return Timing(capture=_filled(self.capture), step_period=_filled(self.step_period))

    def _memory(self) -> GraphMemory:
        return GraphMemory(
            pool_bytes=sum(self.bytes_by_owner.values()) if self.bytes_by_owner else self.pool_bytes,
            estimated_bytes=self.estimated_bytes,
            by_owner=dict(self.bytes_by_owner) or None,
        )

    def window(self, workload: Workload, start_ns: int, end_ns: int) -> Window:
        """What was counted as a window of a workload."""
        dispatch, timing, memory = self._content()
        return Window(
            workload=workload,
            start_ns=start_ns,
            end_ns=max(end_ns, start_ns + 1),
            origin="log",
            dispatch=dispatch,
            timing=timing,
            memory=memory,
            blind=tuple(self.blind),
            observations=tuple(Observation(k, d, n, where) for (k, d, where), n in self.observations.items()),
        )


_NOTHING = (Dispatch(), Timing(), GraphMemory())


def _filled(builder: HistogramBuilder) -> Histogram | None:
    return builder.build() if builder.count else None


def fold_sizes(sizes: Counter[int]) -> dict[int, int] | None:
    """Sizes as the contract wants them: at most 64 keys, the largest rounded up to powers of two beyond that."""
    if not sizes:
        return None
    if len(sizes) <= _MAX_SIZES:
        return dict(sizes)
    folded: Counter[int] = Counter()
    for position, size in enumerate(sorted(sizes)):
        key = size if position < _MAX_SIZES // 2 else 1 << (size - 1).bit_length()
        folded[key] += sizes[size]
    return dict(folded)
