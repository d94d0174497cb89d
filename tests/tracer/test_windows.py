"""One window against scripts whose sums are known exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.window import Timing, TracedWork
from replaywatch.contract.wire import decode_record
from tracer.fake_world import Copy, Eager, Replay, Script, World
from tracer.truth import idle_between, spans_of, union_ns
from tracer.workloads import LAYERS, PER_LAYER, eager_steps, graph_steps, piecewise_steps, replay_at


def traced(found: Any) -> TracedWork:
    record = decode_record(TracedWork, found["traced"])
    assert isinstance(record, TracedWork)
    return record


def timing(found: Any) -> Timing:
    record = decode_record(Timing, found["timing"])
    assert isinstance(record, Timing)
    return record


def test_eager_steps_are_found_and_summed_exactly(world: World) -> None:
    found = world.play(eager_steps(9))
    kernels = 1 + LAYERS * PER_LAYER + 2
    period = kernels * 10_000 + 33_000
    work = traced(found)
    assert found["devices"][0]["steps_from"] == "pattern"
    assert (work.steps, work.span_ns, work.kernel_ns) == (8, 8 * period, 8 * kernels * 3000)
    assert (work.eager_kernels, work.graph_kernels, work.chain_kernels, work.launches) == (
        8 * kernels,
        0,
        8 * kernels,
        8 * kernels,
    )
    assert work.busy_ns == 8 * kernels * 3000
    assert work.span_sq_ns2 == 8 * float(period) ** 2
    assert (work.total_kernels, work.total_busy_ns) == (9 * kernels, 9 * kernels * 3000)
    assert work.total_span_ns == 9 * period - 40_000
    assert timing(found).launch_gap == Histogram.of([7000] * 8 * (kernels - 1))
    assert timing(found).step_period == Histogram.of([period] * 8)
    assert work.coverage == 0.0
    assert work.dropped_records == 0
    assert found["blind"] == []


def test_replays_are_counted_and_the_first_and_last_are_left_out(world: World) -> None:
    found = world.play(graph_steps(12))
    work = traced(found)
    length = 50 * 2920 - 420
    period = 2 * 2000 + length + 1000 + 1200 + 6000
    device = found["devices"][0]
    assert device["replays"] == 12
    assert device["dropped"] == {"zero": 0, "late": 0, "impossible": 0, "edge": 100, "damaged": 0}
    assert timing(found).replay == Histogram.of([length] * 10)
    assert work.span_ns == work.steps * period
    assert work.steps >= 9
    assert work.graph_kernels == 50 * work.steps
    assert (work.graph_launches, work.launches) == (work.steps, 0)
    assert (work.input_copies, work.input_copy_bytes) == (2 * work.steps, 2 * work.steps * 4096)
    assert work.input_copy_ns == 2 * work.steps * 1500
    assert work.copies == 3 * work.steps
    assert work.replay_gap_ns == 1000 * work.steps
    assert work.in_graph_gaps == 49 * work.steps
    assert work.in_graph_gap_ns == 49 * work.steps * 420
    assert work.graph_busy_ns == 50 * 2500 * work.steps
    assert work.coverage == 1.0


def test_piecewise_graphs_are_one_step_with_their_eager_work(world: World) -> None:
    found = world.play(piecewise_steps(8))
    work = traced(found)
    assert found["devices"][0]["steps_from"] == "pattern"
    assert work.steps >= 5
    assert work.graph_kernels == 4 * 8 * work.steps
    assert work.eager_kernels == 5 * work.steps
    assert work.graph_launches == 4 * work.steps
    piece = 8 * 2920 - 420 + 3000 + 12_000
    assert work.span_ns == work.steps * (4 * piece + 34_000)


def test_marks_give_the_steps_and_their_modes(world: World) -> None:
    script = eager_steps(6)
    period = (1 + LAYERS * PER_LAYER + 2) * 10_000 + 33_000
    # Marks are kept to 4 ns.
    marks: list[tuple[int, str | None]] = [(i * period - 100, "full" if i % 2 else "eager") for i in range(1, 6)]
    found = world.play(Script(script.work, marks))
    work = traced(found)
    assert found["devices"][0]["steps_from"] == "marks"
    assert work.steps == 4
    assert abs(work.span_ns - 4 * period) <= 8
    assert work.eager_kernels == 4 * (1 + LAYERS * PER_LAYER + 2)
    by_mode = timing(found).step_by_mode
    assert by_mode is not None
    assert {mode: h.count for mode, h in by_mode.items()} == {"full": 2, "eager": 2}
    assert found["window"]["marks"] == 5


def test_work_on_two_streams_is_busy_once(world: World) -> None:
    work_list: list[Eager | Copy | Replay] = []
    for step in range(6):
        at = step * 100_000
        work_list += [Eager("first", at, at + 20_000, stream=7), Eager("side", at + 5000, at + 40_000, stream=8)]
        work_list += [
            Eager("last", at + 30_000, at + 35_000, stream=7),
            Copy(0, 64, at + 60_000, at + 61_000, stream=9),
        ]
    found = world.play(Script(work_list))
    work = traced(found)
    assert work.steps == 5
    assert work.busy_ns == 5 * (40_000 + 1000)
    assert work.kernel_ns == 5 * (20_000 + 35_000 + 5000)
    assert work.chain_kernels == 5  # the busiest stream by time is the side stream
    assert timing(found).launch_gap == Histogram.of([20_000] * 5)
    assert work.total_busy_ns == union_ns(spans_of(work_list))
    streams = {s["stream"]: s for s in found["devices"][0]["streams"]}
    assert streams[7]["kernels"] == 12
    assert streams[7]["gap_ns"] == 6 * 10_000 + 5 * 65_000


def test_devices_are_summed_apart(world: World) -> None:
    first, second = eager_steps(5), graph_steps(6)
    moved = [Eager(w.name, w.start, w.end, w.stream, 3) for w in first.work if isinstance(w, Eager)]
    found = world.play(Script([*moved, *second.work]))
    by_device = {d["device"]: d["traced"] for d in found["devices"]}
    assert by_device[3]["eager_kernels"] == 4 * 33
    assert by_device[0]["total_graph_kernels"] == 4 * 50
    assert found["device"] == 0
    assert found["traced"] == by_device[0]


def test_a_pause_of_the_service_is_not_idle_time_of_the_work(world: World) -> None:
    script = eager_steps(8)
    period = 33 * 10_000 + 33_000
    late = [Eager(w.name, w.start + 70_000_000, w.end + 70_000_000) for w in script.work if isinstance(w, Eager)]
    found = world.play(Script([*script.work, *late]))
    work = traced(found)
    assert work.skipped_steps == 1
    assert work.steps == 14
    assert work.total_span_ns == 2 * (8 * period - 40_000)


def test_stampless_records_are_dropped_and_counted(world: World) -> None:
    script = graph_steps(10)
    index = next(i for i, w in enumerate(script.work) if isinstance(w, Replay) and i > 14)
    one = script.work[index]
    assert isinstance(one, Replay)
    script.work[index] = Replay(one.graph, one.starts, one.ends, stampless=True)
    found = world.play(script)
    assert found["devices"][0]["dropped"]["zero"] == 50
    assert traced(found).dropped_records == 50 + 100
    assert timing(found).replay == Histogram.of([50 * 2920 - 420] * 7)


@pytest.mark.parametrize("bad_nodes", [1, 4, 25])
def test_impossible_durations_do_not_reach_the_sums(world: World, bad_nodes: int) -> None:
    script = graph_steps(12)
    clean = world.play(script)
    index = [i for i, w in enumerate(script.work) if isinstance(w, Replay)][5]
    one = script.work[index]
    assert isinstance(one, Replay)
    ends = tuple(e + 5_000_000 if i < bad_nodes else e for i, e in enumerate(one.ends))
    script.work[index] = Replay(one.graph, one.starts, ends)
    found = world.play(script)
    device = found["devices"][0]
    assert device["dropped"]["impossible"] == bad_nodes
    assert device["dropped"]["damaged"] == (0 if bad_nodes < 5 else 50 - bad_nodes)
    length = 50 * 2920 - 420
    lost = timing(clean).replay.count - timing(found).replay.count  # type: ignore[union-attr]
    assert lost == (0 if bad_nodes < 5 else 1)
    assert all(abs(h - length) <= bad_nodes * 2920 for h in [timing(found).replay.mean])  # type: ignore[union-attr, operator]
    assert traced(found).busy_ns <= traced(clean).busy_ns


def test_long_collectives_that_nothing_contradicts_stay(world: World) -> None:
    script = graph_steps(10)
    replays = [i for i, w in enumerate(script.work) if isinstance(w, Replay)]
    shift = 0
    for i, item in enumerate(script.work):
        if isinstance(item, Replay):
            wait = 400_000 if i == replays[4] else 0
            starts = tuple(s + shift + (wait if k > 20 else 0) for k, s in enumerate(item.starts))
            ends = tuple(e + shift + (wait if k >= 20 else 0) for k, e in enumerate(item.ends))
            script.work[i] = Replay(item.graph, starts, ends)
            shift += wait
        elif isinstance(item, Copy):
            script.work[i] = Copy(item.kind, item.size, item.start + shift, item.end + shift)
    found = world.play(script)
    assert found["devices"][0]["dropped"]["impossible"] == 0
    replay = timing(found).replay
    assert replay is not None
    assert replay.sum == 8 * (50 * 2920 - 420) + 400_000


def test_records_of_an_earlier_window_are_late(world: World) -> None:
    script = eager_steps(5)
    old = [Eager("old", -50_000_000 + i * 1000, -50_000_000 + i * 1000 + 500) for i in range(7)]
    found = world.play(Script([*old, *script.work]))
    assert found["devices"][0]["dropped"]["late"] == 7
    assert traced(found).total_kernels == 5 * 33


def test_one_correlation_id_for_all_replays_is_seen_through(world: World) -> None:
    right = world.play(graph_steps(10))
    wrong = world.play(graph_steps(10, correlation=77))
    assert right["devices"][0]["correlation_trusted"]
    assert not wrong["devices"][0]["correlation_trusted"]
    assert wrong["traced"] == right["traced"]
    assert wrong["timing"] == right["timing"]


def test_work_that_is_still_queued_is_not_forced_out(world: World) -> None:
    script = eager_steps(6)
    found = world.play(Script(script.work, queued_until=700_000))
    # Its buffer holds work that is not done, so nothing comes now, and nothing is invented.
    assert found is None or "traced" not in found


def test_an_empty_window_says_nothing(world: World) -> None:
    assert world.play(Script([], length=1000)) is None


def test_irregular_work_has_sums_without_steps(world: World) -> None:
    at, work_list = 0, []
    for i in range(60):
        work_list.append(Eager(f"k{i}", at, at + 1000 + 13 * i))
        at += 5000 + 97 * (i * i % 23)
    found = world.play(Script(work_list))  # type: ignore[arg-type]
    work = traced(found)
    spans = spans_of(work_list)
    assert (work.steps, found["devices"][0]["steps_from"]) == (0, "none")
    assert work.busy_ns == union_ns(spans)
    assert work.span_ns == spans[-1][1] - spans[0][0]
    assert timing(found).launch_gap == Histogram.of([b - a for a, b in idle_between(spans)])


eager_work = st.lists(
    st.builds(
        lambda start, length, stream: Eager(f"k{start}", start, start + length, stream),
        st.integers(0, 3_000_000),
        st.integers(1, 200_000),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=30, deadline=None)
@given(work_list=eager_work)
def test_any_eager_work_is_summed_as_the_plain_count_says(world: World, work_list: list[Eager]) -> None:
    found = world.play(Script(list(work_list)))
    work = traced(found)
    spans = spans_of(work_list)
    assert work.total_kernels == len(work_list)
    assert work.total_busy_ns == union_ns(spans)
    assert work.total_span_ns == max(e for _, e in spans) - min(s for s, _ in spans)
    assert sum(s["kernel_ns"] for s in found["devices"][0]["streams"]) == sum(e - s for s, e in spans)
    if not work.steps:  # names differ, so there are steps only where starts are equal
        assert timing(found).launch_gap == (
            Histogram.of([b - a for a, b in idle_between(spans)]) if idle_between(spans) else None
        )


def test_copy_kernels_before_a_replay_are_input_copies(world: World) -> None:
    work_list: list[Eager | Copy | Replay] = []
    at = 0
    for _ in range(9):
        for name in ("_ZN2at6native18direct_copy_kernelE", "CatArrayBatchedCopy", "prepare"):
            work_list.append(Eager(name, at, at + 900))
            at += 1500
        replay = replay_at(1, at, 30)
        work_list.append(replay)
        at = replay.ends[-1] + 5000
    work = traced(world.play(Script(work_list)))
    assert work.input_copies == work.steps
    assert work.input_copy_bytes == 0
