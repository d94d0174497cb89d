"""The alert rules: fresh, accepted by Prometheus' own checker, right in its unit tests, one for each detector."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.programs import AMTOOL, needs_amtool, needs_promtool, promtool
from replaywatch.contract.metrics import BY_NAME, CATALOGUE
from replaywatch.dashboards.families import FAMILIES, INFORMING, OTHER, family_of
from replaywatch.dashboards.finding_alerts import alert_name
from replaywatch.dashboards.rule import Record, RuleSettings
from replaywatch.dashboards.rules import alerts, groups, rules_document, rules_text
from replaywatch.detectors.catalogue import DETECTORS
from replaywatch.detectors.detector import Detector

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMITTED = ROOT / "dashboards" / "rules" / "replaywatch.rules.yml"


def test_the_committed_rules_are_fresh() -> None:
    assert COMMITTED.read_text() == rules_text(), "run dashboards/generate.py"


def test_each_detector_has_one_alert() -> None:
    names = [rule.name for rule in alerts()]
    assert len(names) == len(set(names))
    assert {alert_name(d.name) for d in DETECTORS} <= set(names)


def test_each_detector_has_a_family() -> None:
    assert not [d.name for d in DETECTORS if family_of(d.name) == OTHER]
    assert {name for names in FAMILIES.values() for name in names} <= {d.name for d in DETECTORS}


def severities(detector: Detector) -> set[str]:
    """What the detector's code gives its findings: `info`, or `more` where it may be anything else."""
    calls = ast.walk(ast.parse(inspect.getsource(type(detector))))
    made = [c for c in calls if isinstance(c, ast.Call) and getattr(c.func, "id", "") == "Finding"]
    given = [k.value for c in made for k in c.keywords if k.arg == "severity"]
    assert given, detector.name
    return {"info" if isinstance(value, ast.Constant) and value.value == "info" else "more" for value in given}


def test_the_detectors_that_only_inform_are_those_whose_alerts_are_said_to_be_silent() -> None:
    assert {d.name for d in DETECTORS if severities(d) == {"info"}} == INFORMING


def test_rules_use_only_series_that_somebody_exposes() -> None:
    known = {m.name for m in CATALOGUE} | {r.name for g in groups() for r in g.rules if isinstance(r, Record)}
    for group in groups():
        for rule in group.rules:
            used = re.findall(r"\b(?:\w+:)?(?:cudagraph|replaywatch)_[\w:]+", rule.expr)
            assert used, rule.name
            assert set(used) <= known, (rule.name, set(used) - known)


def test_rules_match_labels_that_the_series_have() -> None:
    for group in groups():
        for rule in group.rules:
            for name, matchers in re.findall(r"\b((?:cudagraph|replaywatch)_\w+)\{([^}]*)\}", rule.expr):
                labels = set(re.findall(r"(\w+)(?:=~|!=|!~|=)", matchers))
                row = BY_NAME[name]
                assert labels <= {*row.labels, "phase"}, (rule.name, name)


def test_every_alert_says_what_it_is_and_links_to_a_runbook() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    for group in rules_document()["groups"]:  # type: ignore[attr-defined]
        for rule in group["rules"]:
            if "alert" not in rule:
                continue
            notes = rule["annotations"]
            assert set(notes) == {"summary", "description", "runbook_url"}
            assert rule["labels"]["severity"] in ("critical", "warning", "info") or "$labels.severity" in str(rule)
            assert f"### {rule['alert']}\n" in page
            assert notes["runbook_url"].endswith(f"docs/alerts.md#{rule['alert'].lower()}")


def test_the_address_of_runbooks_is_a_setting() -> None:
    text = rules_text(RuleSettings(runbooks="https://wiki.example/replaywatch/"))
    assert "runbook_url: https://wiki.example/replaywatch/alerts.md#cudagraphdisabled\n" in text


@pytest.mark.parametrize("settings", [RuleSettings(), RuleSettings(hold="0s", interval="1s", objective=0.5, gpus=0.1)])
@needs_promtool
def test_prometheus_accepts_the_rules(settings: RuleSettings, tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rules_text(settings))
    rules = sum(len(g.rules) for g in groups(settings))
    assert f"SUCCESS: {rules} rules found" in promtool("check", "rules", file)


@needs_promtool
def test_rules_fire_and_stay_silent_as_they_should(tmp_path: Path) -> None:
    text = (HERE / "replaywatch.test.yml").read_text().replace("RULES", str(COMMITTED))
    for detector in DETECTORS:
        text = text.replace(f"SUMMARY:{detector.name}", _first_line(detector))
    file = tmp_path / "replaywatch.test.yml"
    file.write_text(text)
    promtool("test", "rules", file)


@needs_promtool
def test_each_detectors_alert_fires_on_its_finding_alone(tmp_path: Path) -> None:
    tests = []
    for detector in DETECTORS:
        series = f'cudagraph_finding{{pod="p",UUID="GPU-1",detector="{detector.name}",severity="page"}}'
        labels = f'ALERTS{{alertname="{alert_name(detector.name)}",alertstate="firing",detector="{detector.name}",'
        labels += f'family="{family_of(detector.name)}",pod="p",severity="critical",UUID="GPU-1"}}'
        tests.append(
            {
                "interval": "30s",
                "input_series": [{"series": series, "values": "1x20"}],
                "promql_expr_test": [
                    {
                        "expr": 'ALERTS{alertstate="firing"}',
                        "eval_time": "5m",
                        "exp_samples": [{"labels": labels, "value": 1}],
                    }
                ],
            }
        )
    file = tmp_path / "each.test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(COMMITTED)], "evaluation_interval": "30s", "tests": tests}))
    promtool("test", "rules", file)


@needs_amtool
def test_alertmanager_accepts_the_example() -> None:
    done = subprocess.run(
        [str(AMTOOL), "check-config", str(ROOT / "dashboards" / "rules" / "alertmanager.example.yml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_names_alerts_that_exist() -> None:
    content = yaml.safe_load((ROOT / "dashboards" / "rules" / "alertmanager.example.yml").read_text())
    names = {rule.name for rule in alerts()}
    for rule in content["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            _, _, value = matcher.partition("=")
            for pattern in value.strip('~"').split("|"):
                assert any(re.fullmatch(pattern, name) for name in names), pattern


def _first_line(detector: object) -> str:
    return (inspect.getdoc(type(detector)) or "").partition("\n")[0]
