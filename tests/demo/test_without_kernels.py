"""What the probe sends by default, without kernels: an engine that was eager from the start pages, with its cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.wire import Batch
from replaywatch.demo.scenario import Scenario, load_scenarios
from replaywatch.demo.stage import Stage

SIZES: dict[str, Any] = {"weight_bytes": 2_200_000_000, "layers": 22, "cache_bytes_per_token": 22_528}


def _without_kernels(frame: Batch, sizes: dict[str, Any]) -> Batch:
    """A frame as it is where nobody asked for kernels, from a probe that knows the model's sizes."""
    known = {id_: replace(config, **sizes) if config.graphs_enabled is not None else config
             for id_, config in frame.configs.items()}  # fmt: skip
    windows = tuple(
        replace(w, traced=None, config_id=known[w.config_id].id if w.config_id in known else w.config_id)
        for w in frame.windows
    )
    return replace(frame, windows=windows, configs={config.id: config for config in known.values()})


def _bare(scenario: Scenario, sizes: dict[str, Any]) -> Scenario:
    configs: dict[str, EngineConfig] = {}
    frames = []
    for frame in scenario.frames:  # configurations come once; windows of later frames point to them
        configs |= frame.configs
        frames.append(_without_kernels(replace(frame, configs=dict(configs)), sizes))
    return replace(scenario, frames=tuple(frames))


def _told(name: str, sizes: dict[str, Any], enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    scenario = next(s for s in load_scenarios() if s.name == name)
    with Stage((_bare(scenario, sizes),), "127.0.0.1", 0) as stage:
        deadline = time.monotonic() + 60
        found: dict[str, Any] = {}
        while time.monotonic() < deadline:
            decoding = [w for w in stage.workloads() if "prefill" not in str(w.get("workload", w))]
            found = next(iter(decoding), {})
            if found and enough(found):
                return found
            time.sleep(0.5)
    pytest.fail(f"after a minute: {found}")


@pytest.mark.slow
def test_an_eager_engine_pages_within_a_minute_and_says_what_it_costs() -> None:
    found = _told("disabled", SIZES, lambda w: w["severity"] == "page")
    assert found["verdict"] == "finding"
    assert "as one graph such a step takes about" in str(found)


@pytest.mark.slow
def test_without_the_sizes_it_is_told_and_never_paged() -> None:
    found = _told("disabled", dict.fromkeys(SIZES), lambda w: "what that costs was not measured" in str(w))
    assert found["severity"] == "info"
