"""What rules are: plain data, one row each, from which the rule file and the page about alerts are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

AlertSeverity = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A recording rule. `help` says what the series is, for people."""

    name: str
    expr: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule. `hold` is how long it must be true, `keep` how long it goes on firing afterwards.

    `severity` may be a template over the labels of the series. `meaning` and `action` become the runbook.
    """

    name: str
    expr: str
    hold: str
    severity: str
    summary: str
    description: str
    meaning: str
    action: str
    keep: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    interval: str
    rules: tuple[Record | Alert, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """What an operator may change when rules are generated.

    `runbooks` is where the docs folder is reached. `hold` delays findings, `keep` bridges gaps in them. `objective` is
    the share of decode steps that are to be replayed, whose remainder is the budget that burn rates are of.
    `gpus` is how many GPU equivalents the fleet may lose before somebody is told. `pause` delays alerts on our own
    health.
    """

    runbooks: str = "docs"
    interval: str = "30s"
    hold: str = "1m"
    keep: str = "5m"
    pause: str = "5m"
    objective: float = 0.95
    gpus: float = 1.0
