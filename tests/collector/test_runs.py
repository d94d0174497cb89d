from __future__ import annotations

import random
import time
from dataclasses import replace

from collector import web
from collector.conftest import Start
from collector.material import GOOD, HEADERS, OFF, SECOND, body, eager_window, healthy_window, workload
from collector.test_pages import checked, text_of
from replaywatch.collector.runs import CHANGES_MAX, changes, runs_of


def test_what_was_configured_differently_is_told() -> None:
    told = changes(GOOD, replace(OFF, settings={"gpu_memory": "0.8"}, environment={"VLLM_X": "1"}))
    assert told is not None
    assert "resolved mode: FULL_AND_PIECEWISE → NONE" in told
    assert "enforced by: – → --enforce-eager" in told
    assert "capture sizes: 1, 2, 4, 8, 16, 24, 32 → –" in told
    assert "gpu_memory: – → 0.8" in told
    assert "$VLLM_X: – → 1" in told
    assert not any(text.startswith("requested mode") for text in told)
    assert changes(GOOD, GOOD) == ()
    assert changes(None, GOOD) is changes(GOOD, None) is None
    many = changes(GOOD, replace(GOOD, settings={f"s{n}": "1" for n in range(99)}))
    assert many is not None
    assert len(many) == CHANGES_MAX


def test_runs_of_a_pod_and_of_a_device_are_one_history(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    rng, now = random.Random(1), time.time_ns()
    first = healthy_window(now - 60 * SECOND, rng, workload("chat-a", pid=1))
    again = eager_window(now - 40 * SECOND, rng, workload("chat-a", pid=2))
    rolled = eager_window(now - 20 * SECOND, rng, workload("chat-b", pid=3, gpu_uuid="GPU-chat-a"))
    other = healthy_window(now - 20 * SECOND, rng, workload("chat-c", pid=4))
    foreign = healthy_window(now - 20 * SECOND, rng, workload("chat-d", gpu_uuid="GPU-chat-a", model_name="qwen"))
    for number, window in enumerate((first, again, rolled, other, foreign)):
        web.post(f"{handle.url}/v1/batches", content=body([window], f"k{number}"), headers=HEADERS)
    handle.collector.detection.tick()
    views = handle.collector.detection.view.workloads
    (mine,) = [v for v in views if v.workload.pid == 2]
    runs = runs_of(mine, views)
    assert [r.view.workload.pid for r in runs] == [1, 2, 3]
    assert [r.is_this for r in runs] == [False, True, False]
    (last,) = [v for v in views if v.workload.pid == 3]
    assert [r.view.workload.pid for r in runs_of(last, views)] == [1, 2, 3]
    text = text_of(checked(f"{handle.url}/workloads/{last.id}")[0])
    assert "the first in sight" in text
    assert "changed: resolved mode: FULL_AND_PIECEWISE → NONE" in text
    assert "configured as before" in text


def test_gaps_are_shown_where_they_were_timed(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    window = healthy_window(time.time_ns() - 6 * SECOND, random.Random(1), workload("a"))
    web.post(f"{handle.url}/v1/batches", content=body([window], "k"), headers=HEADERS)
    handle.collector.detection.tick()
    (view,) = handle.collector.detection.view.workloads
    text = text_of(checked(f"{handle.url}/workloads/{view.id}")[0])
    median = window.timing.replay.quantile(0.5) if window.timing.replay else 0
    assert f"device time of a replay {(median or 0) / 1e6:.2f} ms, 99 % within" in text
    assert "idle between kernels" not in text
