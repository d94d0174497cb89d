"""Series stay bounded, whatever workloads say."""

from __future__ import annotations

import pytest

from dashboards.cardinality import PHASES, TYPICAL, WORST, agent_count, collector_count
from replaywatch.dashboards.pages import COLLECTOR_SERIES, POD_SERIES, POD_SERIES_WORST
from replaywatch.detectors.catalogue import DETECTORS


def test_a_pods_agent_exposes_no_more_than_the_documentation_says() -> None:
    assert agent_count(TYPICAL).total <= POD_SERIES
    assert agent_count(WORST).total <= POD_SERIES_WORST


@pytest.mark.parametrize("findings", [0, 1, len(DETECTORS)])
def test_the_collector_exposes_so_many_for_each_workload_and_one_for_each_finding(findings: int) -> None:
    pods = 50
    per_workload = collector_count(pods, findings).total / (pods * len(PHASES))
    assert per_workload == COLLECTOR_SERIES + findings


def test_a_thousand_pods_stay_below_half_a_million_series() -> None:
    collector = collector_count(1000, 1)
    assert 1000 * agent_count(TYPICAL).total + collector.total < 500_000
    # Prometheus' usual limit of time for a scrape is ten seconds.
    assert collector.seconds < 5
