"""What the page says of a workload's graphs."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, healthy_window, workload
from collector.test_pages import checked, text_of
from replaywatch.collector.graph_facts import MOST_NAMED, graph_facts
from replaywatch.contract.device import DeviceState
from replaywatch.contract.window import Dispatch, GraphMemory, ProbeCost, TracedWork, Window


def facts(lifetime: Dispatch, recent: Dispatch | None = None, **more: Any) -> dict[str, str]:
    """The facts of a workload with such windows; spaces that do not break are spaces here."""
    who = workload("one")
    made = partial(Window, workload=who, start_ns=0, origin="probe")
    whole = made(end_ns=10 * SECOND, dispatch=lifetime, traced=more.pop("traced", None))
    now = made(end_ns=5 * SECOND, dispatch=recent or Dispatch(), **more)
    view: Any = SimpleNamespace(lifetime=whole, recent=now)
    return {name: text.replace("\N{NO-BREAK SPACE}", " ") for name, text in graph_facts(view)}


def test_counts_are_told_by_outcome_and_owner_the_largest_first() -> None:
    told = facts(
        Dispatch(
            captures={"ok": 448, "failed": 2, "throwaway": 48, "other": 0},
            replays=12_340, replays_by_owner={"vllm": 12_000, "inductor": 340},
            instantiations=448, destroys=3, failed_calls={"cudaErrorInvalidValue": 1},
        ),
        Dispatch(live_graphs=445, unused_graphs=66, graph_nodes=70_000),
    )  # fmt: skip
    assert told == {
        "graphs alive": "445, 66 of them never replayed",
        "nodes in them": "70 000",
        "captures": "448 kept, 48 thrown away, 2 failed",
        "instantiations": "448",
        "replays": "12 000 vllm, 340 inductor",
        "destroyed": "3",
        "failed calls": "1 cudaErrorInvalidValue",
    }


def test_what_is_not_known_is_left_out_and_nothing_is_said_where_nothing_is_known() -> None:
    assert facts(Dispatch()) == {}
    assert facts(Dispatch(replays=0, captures={}), Dispatch(live_graphs=0)) == {"graphs alive": "0"}


def test_many_names_are_cut_and_counted() -> None:
    told = facts(Dispatch(failed_calls={f"error{n}": 100 - n for n in range(MOST_NAMED + 3)}))
    assert told["failed calls"].endswith(" and 3 more")
    assert told["failed calls"].count("error") == MOST_NAMED


def test_memory_launches_and_the_cost_of_watching_have_units() -> None:
    told = facts(
        Dispatch(),
        memory=GraphMemory(pool_bytes=1 << 30, estimated_bytes=2 << 30, by_owner={"vllm": 3 << 28, "user": 1 << 28}),
        traced=TracedWork(
            calibrated_launch_ns=4200, calibrated_graph_launch_ns=11_000, calibrated_graph_gap_ns=900,
        ),
        cost=ProbeCost(hook_ns=1_000_000, hook_calls=10, helper_cpu_ns=1_500_000),
    )  # fmt: skip
    assert told == {
        "graph memory": "1.0 GiB: vllm 768.0 MiB, user 256.0 MiB",
        "the engine expected": "2.0 GiB",
        "a launch on this host": "4.2 µs",
        "a graph launch on this host": "11.0 µs",
        "between nodes of a graph": "0.9 µs",
        "watching took": "0.05 % of the time",
    }


def test_the_page_of_a_workload_shows_them(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    rng, who = random.Random(1), workload("chat")
    for at in range(3):
        window = healthy_window(time.time_ns() - (12 - 4 * at) * SECOND, rng, who)
        seen = replace(window.dispatch, captures={"ok": 7}, replays_by_owner={"vllm": 1500})
        web.post(f"{handle.url}/v1/batches", content=body([replace(window, dispatch=seen)], f"k{at}"), headers=HEADERS)
    handle.collector.detection.tick()
    (view,) = handle.collector.detection.view.workloads
    text = text_of(checked(f"{handle.url}/workloads/{view.id}")[0])
    assert "Graphs counts since first seen" in text
    assert "captures 21 kept" in text
    assert "replays 4 500 vllm" in text


def test_where_nothing_is_traced_the_page_says_how_active_nvml_saw_the_device(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    window = replace(healthy_window(time.time_ns() - 8 * SECOND, random.Random(1), workload("chat")), traced=None)
    for at, device in enumerate((None, DeviceState(active_ratio=0.273))):
        sent = replace(window, device=device, start_ns=window.start_ns + at * SECOND)
        web.post(f"{handle.url}/v1/batches", content=body([sent], f"k{at}"), headers=HEADERS)
        handle.collector.detection.tick()
        (view,) = handle.collector.detection.view.workloads
        text = text_of(checked(f"{handle.url}/workloads/{view.id}")[0])
        assert ("GPU active NVML 27 %" in text) == (device is not None)
        assert ("GPU busy" in text) == (device is None)
