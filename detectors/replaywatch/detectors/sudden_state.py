"""`SuddenState`: what a workload's windows have taught so far. Advanced by one window at a time; a plain value that can
be written down and read back (`wire.jsonable`, `wire.decode_record`), so a restart forgets nothing.

Its size does not grow with the number of windows: 24 levels a channel, one ellipse, at most 96 rows while one is made.
"""

from __future__ import annotations

from dataclasses import field

from replaywatch.contract.record import record
from replaywatch.contract.window import Window
from replaywatch.detectors.channels import CHANNELS
from replaywatch.detectors.figures import Figures, figures_of
from replaywatch.detectors.outliers import JOINT, JointMemory, advance_joint
from replaywatch.detectors.pool_growth import PoolGrowth, advance_growth
from replaywatch.detectors.shifts import Channel, advance_channel
from replaywatch.detectors.surroundings import Surroundings, surroundings_of


@record(frozen=True, slots=True, kw_only=True)
class SuddenState:
    """Everything remembered of one workload between windows.

    `calm` is what stood around the last calm window, `fingerprint_since_ns` when the present fingerprint was first
    seen; `captures_since` counts captures since then.
    """

    windows: int = 0
    end_ns: int = 0
    is_from_probe: bool = False
    channels: tuple[Channel, ...] = ()
    calm: Surroundings = field(default_factory=Surroundings)
    joint: JointMemory = field(default_factory=JointMemory)
    growth: PoolGrowth = field(default_factory=PoolGrowth)
    fingerprint_id: str | None = None
    previous_fingerprint_id: str | None = None
    captures_since: int = 0
    replays_since: int = 0


def advance(state: SuddenState, window: Window) -> SuddenState:
    """The state after one more window.

    One that ends before the last is left out, and so is one from a log or from metrics once the probe was heard: the
    two count differently.
    """
    if window.end_ns <= state.end_ns or (state.is_from_probe and window.origin != "probe"):
        return state
    figures = figures_of(window)
    now = surroundings_of(window, figures)
    channels = _advance_channels(state, window, figures, now)
    is_calm = not any(c.shift is not None or c.odd for c in channels)
    residuals = {c.name: c.residual for c in channels if c.residual is not None and c.name in JOINT}
    joint = advance_joint(state.joint, residuals, is_calm) if figures.steps else state.joint
    captured = (window.dispatch.captures or {}).get("ok", 0)
    fresh = window.fingerprint_id is not None and window.fingerprint_id != state.fingerprint_id
    return SuddenState(
        windows=state.windows + 1,
        end_ns=window.end_ns,
        is_from_probe=state.is_from_probe or window.origin == "probe",
        channels=channels,
        calm=now if is_calm else state.calm,
        joint=joint,
        growth=advance_growth(state.growth, figures.pool_bytes, captured, window.end_ns),
        fingerprint_id=window.fingerprint_id or state.fingerprint_id,
        previous_fingerprint_id=state.fingerprint_id if fresh else state.previous_fingerprint_id,
        captures_since=(0 if fresh else state.captures_since) + captured,
        replays_since=(0 if fresh else state.replays_since) + (window.dispatch.replays or 0),
    )


def _advance_channels(state: SuddenState, window: Window, figures: Figures, now: Surroundings) -> tuple[Channel, ...]:
    """All channels, in the order of CHANNELS."""
    known = {c.name: c for c in state.channels} if len(state.channels) != len(CHANNELS) else None
    advanced = []
    for i, kind in enumerate(CHANNELS):
        channel = state.channels[i] if known is None else known.get(kind.name) or Channel(kind.name)
        value = kind.read(window, figures)
        if value is None:
            advanced.append(_unconfirmed(channel) if channel.odd else channel)
        else:
            advanced.append(advance_channel(channel, kind, value, figures.load, window.end_ns, state.calm, now))
    return tuple(advanced)


def _unconfirmed(channel: Channel) -> Channel:
    """A channel without a value in this window: what a single window told is not confirmed."""
    if channel.odd == 1 and (channel.shift is None or channel.shift.windows < 2):
        return Channel(channel.name, channel.levels)
    return channel
