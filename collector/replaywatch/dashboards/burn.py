"""Burn rates: how fast decode steps use up the share that need not be replayed, over pairs of windows.

Pairs and factors are those of the SRE workbook's table for multi-window, multi-burn-rate alerts: the long window says
that it matters, the short one that it still goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replaywatch.contract.verdict import INFO_RATIO
from replaywatch.dashboards.promql import SERVICE, matching, share
from replaywatch.dashboards.rule import Alert, AlertSeverity, Record, RuleSettings


@dataclass(frozen=True, slots=True)
class Pair:
    """Two windows, and the multiple of the budget that both must be above.

    `hold` keeps a service that has only just started, of which the long window holds minutes, from being told at once.
    """

    long: str
    short: str
    factor: float
    severity: AlertSeverity
    hold: str


PAIRS: Final = (
    Pair("1h", "5m", 14.4, "critical", "1m"),
    Pair("6h", "30m", 6.0, "critical", "10m"),
    Pair("1d", "2h", 3.0, "warning", "30m"),
    Pair("3d", "6h", 1.0, "warning", "1h"),
)
WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
# A prefill is eager by design in most engines; its steps would drown the decode's.
_DECODE: Final = 'phase!="prefill"'
CHEAP: Final = "service:cudagraph_recoverable_low:max"


@dataclass(frozen=True, slots=True)
class Burn:
    """One way of losing replays. `name` goes into series and alerts; `bad` is its share over a window."""

    name: str
    title: str
    meaning: str
    action: str


OVERFLOW: Final = Burn(
    "overflow",
    "decode steps do not fit the largest captured graph",
    "Batches grow past the largest captured size, so those steps run eager. The engine says nothing of it.",
    "Raise the largest capture size to the admission limit, or lower the limit; the ladder dashboard shows both beside "
    "the batches that came.",
)
COVERAGE: Final = Burn(
    "uncovered",
    "decode steps are not replayed",
    "A service that replays graphs runs a large share of its decode steps without them, whatever the reason.",
    "The workload dashboard shows the reasons. Services that never replay a graph are not counted here; the alert on "
    "disabled graphs is about them.",
)
BURNS: Final = (OVERFLOW, COVERAGE)


def burn_records() -> tuple[Record, ...]:
    """The shares over every window."""
    records = []
    for window in WINDOWS:
        all_steps = f"sum by ({SERVICE}) (rate({matching('cudagraph_steps_total', _DECODE)}[{window}]))"
        above = matching("cudagraph_fallbacks_total", _DECODE, 'reason="above_ceiling"')
        eager = matching("cudagraph_steps_total", _DECODE, 'mode="eager"')
        replayed = matching("cudagraph_steps_total", _DECODE, 'mode=~"full|piecewise"')
        records += [
            Record(
                name=ratio_name(OVERFLOW, window),
                expr=share(f"sum by ({SERVICE}) (rate({above}[{window}]))", all_steps),
                help=f"Share of decode steps above the largest captured size, over {window}.",
            ),
            Record(
                name=ratio_name(COVERAGE, window),
                expr=f"({share(f'sum by ({SERVICE}) (rate({eager}[{window}]))', all_steps)})"
                f" and on ({SERVICE}) (sum by ({SERVICE}) (rate({replayed}[{window}])) > 0)",
                help=f"Share of decode steps that ran eager, over {window}, of services that replay graphs.",
            ),
        ]
    return tuple(records)


def ratio_name(burn: Burn, window: str) -> str:
    """Name of the recorded share."""
    return f"service:cudagraph_{burn.name}:ratio_rate{window}"


def burn_alerts(settings: RuleSettings) -> tuple[Alert, ...]:
    """An alert for each way and pair of windows."""
    return tuple(_alert(burn, pair, settings) for burn in BURNS for pair in PAIRS)


def _alert(burn: Burn, pair: Pair, settings: RuleSettings) -> Alert:
    threshold = round(pair.factor * (1 - settings.objective), 6)
    long, short = ratio_name(burn, pair.long), ratio_name(burn, pair.short)
    return Alert(
        name=f"CudaGraph{burn.name.capitalize()}Burn{pair.long}",
        # Where the cost is known and small, nobody is told: a device-bound service loses nothing.
        expr=f"({long} > {threshold:g} and {short} > {threshold:g}) unless on ({SERVICE}) ({CHEAP} < {INFO_RATIO:g})",
        hold=pair.hold,
        severity=pair.severity,
        labels={"family": "coverage", "window": pair.long},
        summary=f"{{{{ $labels.namespace }}}} {{{{ $labels.model_name }}}}: {burn.title}",
        description=f"{{{{ $value | humanizePercentage }}}} of the decode steps over {pair.long}, and as many over the "
        f"last {pair.short}; {threshold:.1%} is {pair.factor:g} times the budget.",
        meaning=burn.meaning,
        action=burn.action,
    )
