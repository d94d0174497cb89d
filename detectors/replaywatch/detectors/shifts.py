"""One channel's memory and how a window moves it: levels learnt, a CUSUM of what is beyond them, and a shift once sure.

    beyond = (value - expected) / sigma, toward worse;  sum = max(0, sum + min(beyond, 12) - 2.5);  a shift from 6 on

A window that is far beyond and matters is a shift at once, and forgotten if the next window is calm; one that is
somewhat beyond needs two or three. While a shift lasts nothing is learnt, for an hour; then it is
what is usual, and no longer sudden.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from replaywatch.contract.record import record
from replaywatch.detectors.channels import ChannelKind
from replaywatch.detectors.levels import Expectation, Level, expect, learn
from replaywatch.detectors.surroundings import Surroundings

SHIFT_SUM: Final = 6.0
_SLACK: Final = 2.5
_MOST: Final = 12.0
# Windows after which a shift is what is usual: an hour of windows of five seconds.
ACCEPTED_WINDOWS: Final = 720
CALM_WINDOWS: Final = 3
AROUND_WINDOWS: Final = 3
# `after` is a mean over this many windows at most.
AVERAGED_WINDOWS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A shift that lasts. `before` was expected, `after` is what came, at the same load, `sigma` the usual spread;
    `windows` that it has lasted, `calm` windows of its end. `around` and `then` are the surroundings before and since.
    """

    since_ns: int
    before: float
    after: float
    sigma: float
    windows: int = 1
    calm: int = 0
    around: Surroundings = field(default_factory=Surroundings)
    then: Surroundings = field(default_factory=Surroundings)


@record(frozen=True, slots=True)
class Channel:
    """One channel's memory; `residual` is the last value's distance in sigmas, toward worse."""

    name: str
    levels: tuple[Level, ...] = ()
    sum: float = 0.0
    residual: float | None = None
    odd: int = 0
    first_ns: int = 0
    shift: Shift | None = None

    @property
    def is_warm(self) -> bool:
        """Whether it can say anything."""
        return any(level.is_warm for level in self.levels)


def advance_channel(
    channel: Channel,
    kind: ChannelKind,
    value: float,
    load: float | None,
    at_ns: int,
    calm: Surroundings,
    now: Surroundings,
) -> Channel:
    """The channel after one more value. Shape: `calm` and `now` are the surroundings before and of this window."""
    at_load = load if kind.by_load else None
    if channel.residual == 0.0 and not kind.by_load and channel.levels[0].value == value and not channel.odd:
        # What never moves needs no arithmetic: pool bytes, captures, coverage.
        return channel
    expected = expect(channel.levels, at_load, grows=kind.grows)
    if expected is None:
        return replace(channel, levels=learn(channel.levels, at_load, value))
    sigma = max(expected.sigma, kind.floor * (1.0 if kind.kind == "ratio" else abs(expected.high)), 1e-9)
    ahead = value - expected.high if kind.worse > 0 else expected.low - value
    beyond = _residual(ahead, kind, value, expected) / sigma
    matters = ahead >= _least(kind, expected)
    if channel.shift is not None:
        return _during(channel, channel.shift, kind, value, at_load, expected, beyond, matters, now)
    usual = expected.low if expected.low == expected.high else None
    total = max(0.0, channel.sum + min(beyond, _MOST) - _SLACK)
    if not matters:
        levels = learn(channel.levels, at_load, value, usual)
        return Channel(channel.name, levels, min(total, _SLACK), beyond)
    odd, first_ns = channel.odd + 1, channel.first_ns or at_ns
    if total < SHIFT_SUM:
        levels = learn(channel.levels, at_load, value, usual) if beyond < _SLACK else channel.levels
        return Channel(channel.name, levels, total, beyond, odd, first_ns)
    shift = Shift(
        since_ns=first_ns,
        before=expected.high if kind.worse > 0 else expected.low,
        after=value,
        sigma=sigma,
        windows=odd,
        around=calm,
        then=now,
    )
    return Channel(channel.name, channel.levels, total, beyond, odd, first_ns, shift)


def _residual(ahead: float, kind: ChannelKind, value: float, expected: Expectation) -> float:
    """Distance from what was expected, toward worse; 0 between its bounds."""
    better = expected.low - value if kind.worse > 0 else value - expected.high
    return ahead if ahead > 0 else -max(0.0, better)


def _least(kind: ChannelKind, expected: Expectation) -> float:
    """The least shift that matters, in the value's own unit."""
    if kind.kind == "ratio":
        return kind.least_gap
    return max(kind.least, kind.least_gap * abs(expected.high))


def _during(
    channel: Channel,
    shift: Shift,
    kind: ChannelKind,
    value: float,
    load: float | None,
    expected: Expectation,
    beyond: float,
    matters: bool,
    now: Surroundings,
) -> Channel:
    """A channel whose shift lasts, ends, or has become what is usual."""
    if shift.windows >= ACCEPTED_WINDOWS:
        return Channel(channel.name, learn((), load, value))
    if matters and beyond >= _SLACK:
        then = _later(shift.then, now) if shift.windows < AROUND_WINDOWS else shift.then
        # As it would be at the load at which the shift began.
        at_start = shift.before + value - (expected.high if kind.worse > 0 else expected.low)
        after = shift.after + (at_start - shift.after) / min(shift.windows + 1, AVERAGED_WINDOWS)
        lasting = replace(shift, after=after, windows=shift.windows + 1, calm=0, then=then)
        return replace(channel, residual=beyond, shift=lasting)
    calm = shift.calm + 1
    needed = min(shift.windows, CALM_WINDOWS) + kind.hold
    if calm >= needed:
        return Channel(channel.name, learn(channel.levels, load, value), 0.0, beyond)
    return replace(channel, residual=beyond, shift=replace(shift, calm=calm))


def _later(first: Surroundings, now: Surroundings) -> Surroundings:
    """The surroundings since a shift: a reading of the device may come a window late."""
    return Surroundings(
        config_id=now.config_id or first.config_id,
        fingerprint_id=now.fingerprint_id or first.fingerprint_id,
        load=now.load if now.load is not None else first.load,
        clock_ratio=min((c for c in (first.clock_ratio, now.clock_ratio) if c is not None), default=None),
        throttles=now.throttles if now.throttles else first.throttles,
        processes=max((p for p in (first.processes, now.processes) if p is not None), default=None),
        launch_us=now.launch_us if now.launch_us is not None else first.launch_us,
        captures=(first.captures or 0) + (now.captures or 0) if first.captures or now.captures else first.captures,
        reason=now.reason or first.reason,
        observed=tuple(dict.fromkeys((*first.observed, *now.observed)))[:6],
    )
