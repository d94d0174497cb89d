"""The channels that are followed window by window: which figure, which way is worse, what is too small to matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from replaywatch.contract.window import Window
from replaywatch.detectors.figures import Figures

Kind = Literal["time", "ratio", "bytes"]
MIN_STEPS: Final = 10
_MIB: Final = float(1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKind:
    """One row. `read` takes the value out of a window; `worse` +1 where more is worse.

    A shift matters from `least_gap` on: relative for times and bytes, in points for ratios. `floor` is the least sigma
    that is believed, in the same terms. `by_load` values are compared at equal load; `grows` with it beyond what was
    seen. `hold` is how many windows a shift stays told.
    """

    name: str
    words: str
    read: Callable[[Window, Figures], float | None]
    kind: Kind = "time"
    worse: int = 1
    least_gap: float = 0.10
    least: float = 0.0
    floor: float = 0.025
    by_load: bool = True
    grows: bool = True
    hold: int = 0


def _stepping(value: float | None, figures: Figures) -> float | None:
    return value if figures.steps >= MIN_STEPS else None


def _pauses(window: Window, figures: Figures) -> float | None:
    """Share of the window in which no usual step ran: waiting for work, for the host, or stopped."""
    length_us = (window.end_ns - window.start_ns) / 1000
    if figures.step_us is None or figures.steps < MIN_STEPS or length_us <= 0:
        return None
    return min(1.0, max(0.0, 1.0 - figures.step_us * figures.steps / length_us))


CHANNELS: Final = (
    ChannelKind(name="step_us", words="step time", read=lambda w, f: _stepping(f.step_us, f)),
    ChannelKind(
        name="pause_ratio",
        words="share of the time without steps, at the same load",
        read=_pauses,
        kind="ratio",
        least_gap=0.15,
        floor=0.02,
        grows=False,
    ),
    ChannelKind(
        name="window_seconds",
        words="time between two reports of the process",
        read=lambda w, f: (w.end_ns - w.start_ns) / 1e9,
        least_gap=1.0,
        least=4.0,
        floor=0.05,
        by_load=False,
        hold=3,
    ),
    ChannelKind(name="replay_us", words="device time of a replay", read=lambda w, f: _stepping(f.replay_us, f)),
    ChannelKind(
        name="gap_us",
        words="idle between replays",
        read=lambda w, f: _stepping(f.gap_us, f),
        least_gap=0.5,
        floor=0.10,
        grows=False,
    ),
    ChannelKind(
        name="launch_us",
        words="host time of a graph launch",
        read=lambda w, f: _stepping(f.launch_us, f),
        least_gap=0.5,
        floor=0.05,
        by_load=False,
    ),
    ChannelKind(
        name="unreplayed_ratio",
        words="share of steps that are not replayed",
        read=lambda w, f: _stepping(f.unreplayed_ratio, f),
        kind="ratio",
        floor=0.02,
        grows=False,
    ),
    ChannelKind(
        name="coverage",
        words="share of kernels that come from graphs",
        read=lambda w, f: f.coverage,
        kind="ratio",
        worse=-1,
        floor=0.02,
        by_load=False,
    ),
    ChannelKind(
        name="captures_per_step",
        words="captures a step",
        read=lambda w, f: _stepping(f.captures_per_step, f),
        kind="ratio",
        least_gap=0.003,
        floor=0.0005,
        by_load=False,
    ),
    ChannelKind(
        name="pool_bytes",
        words="memory of graph pools",
        read=lambda w, f: None if f.pool_bytes is None else float(f.pool_bytes),
        kind="bytes",
        least_gap=0.20,
        least=128 * _MIB,
        by_load=False,
    ),
)
BY_NAME: Final = {c.name: c for c in CHANNELS}
