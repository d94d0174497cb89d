"""Notices for tests: a usual one, and any that hypothesis can think of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from replaywatch.notify.notice import Notice, read_notice

AT = "2026-11-29T12:00:00Z"


def document(**given: Any) -> dict[str, Any]:
    """The outbox's JSON of a usual incident; `given` replaces parts, `incident` and `workload` by field."""
    incident = {
        "id": 42,
        "state": "open",
        "group_key": "disabled/abc",
        "opened_at": AT,
        "closed_at": None,
        "worst_severity": "page",
        "members": 1,
        "open_members": 1,
        "acknowledged_by": None,
        **given.pop("incident", {}),
    }
    workload = {
        "id": "w1",
        "label": "chat-7d9f4 (rank 0 decode)",
        "namespace": "serving",
        "pod": "chat-7d9f4",
        "container": "server",
        "engine": "vllm",
        "model_name": "llama-1b",
        "node": "gpu-01",
        "rank": 0,
        "gpu_index": 0,
        "gpu_uuid": "GPU-1",
        **given.pop("workload", {}),
    }
    return {
        "schema_version": 1,
        "event": "opened",
        "idempotency_key": "k1",
        "at": AT,
        "incident": incident,
        "workload": workload,
        "detector": "disabled",
        "severity": "page",
        "title": "CUDA Graphs are off",
        "cost": {"ratio": 0.41, "low": 0.35, "high": 0.46, "step_us": 11800.0, "saved_us": 4838.0},
        "causes": [{"text": "--enforce-eager is set", "weight": 0.9, "because": "the configuration says so"}],
        "remedy": "remove --enforce-eager",
        "evidence": [{"name": "device busy", "value": 0.21, "unit": "ratio", "source": "kernels"}],
        "links": {
            "incident": "http://collector.example/incidents/42",
            "workload": "http://collector.example/workloads/w1",
            "runbook": "http://docs.example/alerts.md#cudagraphdisabled",
        },
        "dashboard_url": "http://grafana.example/d/replaywatch-fleet?a=1&b=2",
        **given,
    }


def notice(**given: Any) -> Notice:
    """A notice of that."""
    return read_notice(json.dumps(document(**given)))


TEXT = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="<>&|*_`[]\\\"'{}\n @!#", max_size=60),
    st.integers(0, 9000).map(lambda n: "&" * n),
    st.integers(0, 9000).map(lambda n: "word " * (n // 5)),
)
RATIO = st.floats(-1, 2, allow_nan=False)
COST = st.none() | st.fixed_dictionaries(
    {"ratio": RATIO, "low": RATIO, "high": RATIO, "step_us": st.none() | st.floats(0, 1e9), "saved_us": st.just(3.0)},
    optional={"is_recoverable": st.booleans()},
)
ITEM = st.fixed_dictionaries(
    {
        "name": TEXT,
        "value": st.one_of(TEXT, st.integers(), st.floats(allow_nan=False)),
        "unit": st.sampled_from(["", "ratio", "us"]),
        "source": TEXT,
    }
)
URL = st.builds(lambda text: f"https://x.example/{text}", TEXT) | TEXT
SEVERITY = st.sampled_from(["info", "warn", "page"])


@st.composite
def any_notice(draw: st.DrawFn) -> Notice:
    """Any texts, costs and links, of any event."""
    event = draw(st.sampled_from(["opened", "raised", "grown", "closed"]))
    return notice(
        event=event,
        incident={
            "worst_severity": draw(SEVERITY),
            "closed_at": AT if event == "closed" else None,
            "members": draw(st.integers(1, 5000)),
        },
        workload={k: draw(TEXT | st.none()) for k in ("label", "namespace", "pod", "model_name", "node", "gpu_uuid")},
        severity=draw(SEVERITY),
        detector=draw(st.sampled_from(["disabled", "partial_coverage"])),
        title=draw(TEXT),
        cost=draw(COST),
        causes=[{"text": t, "weight": 1, "because": ""} for t in draw(st.lists(TEXT, max_size=5))],
        remedy=draw(TEXT | st.none()),
        evidence=draw(st.lists(ITEM, max_size=8)),
        links={"incident": draw(URL), "workload": draw(URL)},
    )
