"""One alert for each detector: its finding, held, with what it costs and where to read on."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Final

from replaywatch.dashboards.families import WORDS, family_of
from replaywatch.dashboards.promql import WORKLOAD
from replaywatch.dashboards.rule import Alert, RuleSettings
from replaywatch.detectors.detector import Detector

# Our severities as the words that Alertmanager configurations in the field route by.
SEVERITY: Final = (
    '{{ if eq $labels.severity "page" }}critical{{ else if eq $labels.severity "info" }}info{{ else }}warning{{ end }}'
)
# Findings that inform wake nobody, but that what is seen contradicts itself is about all other alerts.
TOLD: Final = {"sight": "info|warn|page"}
_SAME: Final = ("namespace", "pod", "container", "component", "rank", "UUID", "phase")


def finding_alerts(detectors: Iterable[Detector], settings: RuleSettings) -> tuple[Alert, ...]:
    """The alerts, in the order of the detectors."""
    return tuple(_alert(detector, settings) for detector in detectors)


def alert_name(detector: str) -> str:
    """The alert's name for a detector's: `partial_coverage` is CudaGraphPartialCoverage."""
    return "CudaGraph" + "".join(word.capitalize() for word in detector.split("_"))


def _alert(detector: Detector, settings: RuleSettings) -> Alert:
    family = family_of(detector.name)
    first, _, rest = (inspect.getdoc(type(detector)) or detector.name).partition("\n")
    where = "{{ $labels.namespace }}/{{ $labels.pod }}"
    return Alert(
        name=alert_name(detector.name),
        expr=(
            f"max by ({WORKLOAD}, detector, severity) "
            f'(cudagraph_finding{{detector="{detector.name}", severity=~"{TOLD.get(family, "warn|page")}"}}) == 1'
        ),
        hold=settings.hold,
        keep=settings.keep,
        severity=SEVERITY,
        labels={"family": family},
        summary=f"{where} {{{{ $labels.phase }}}}: {first}",
        description=f"{_cost()}The collector's page of the workload shows evidence, causes and the remedy.",
        meaning=" ".join(f"{first} {rest}".split()) + f" Family: {WORDS[family]}.",
        action="Open the incident on the collector's page: it names the cause as far as evidence reaches, and the "
        "change that brings the time back.",
    )


def _cost() -> str:
    matchers = ",".join(f"{label}=%q" for label in _SAME)
    values = " ".join(f"$labels.{label}" for label in _SAME)
    return (
        f'{{{{ with printf `cudagraph_recoverable_ratio{{bound="estimate",{matchers}}}` {values} | query }}}}'
        "{{ $share := . | first | value }}{{ if gt $share 0.01 }}"
        "About {{ $share | humanizePercentage }} of the workload's step time could be won back. {{ end }}"
        "{{ else }}What it costs is not known yet. {{ end }}"
    )
