"""One window against scripts whose sums are known exactly."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram
from tracer.fake_world import Copy, Eager, Replay, Script, World
from tracer.readings import timing, traced
from tracer.truth import idle_between, spans_of, union_ns
from tracer.workloads import LAYERS, PER_LAYER, eager_steps, graph_steps, piecewise_steps, replay_at


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


def test_waits_between_steps_of_one_kernel_again_and_again_are_no_idle_service(world: World) -> None:
    """Every launch looks like a step then; on an H200 the span lacked 87 us of each step of 3.6 ms."""
    per_step, period, rest = 300, 12_000, 90_000
    at = [step * (per_step * period + rest) + k * period for step in range(8) for k in range(per_step)]
    found = world.play(Script([Eager("one", begin, begin + 10_000) for begin in at]))
    work = traced(found)
    assert found["devices"][0]["steps_from"] == "none"
    assert work.total_span_ns == at[-1] + 10_000
    assert work.total_busy_ns == 8 * per_step * 10_000


def test_waits_of_the_host_between_short_steps_belong_to_the_span(world: World) -> None:
    """Steps of 60 us, and 0.5 ms that the host takes after every tenth: no request would come so fast."""
    names = ("first", "second", "third")
    at = [
        (step * 60_000 + step // 10 * 500_000 + k * 20_000, name) for step in range(50) for k, name in enumerate(names)
    ]
    found = world.play(Script([Eager(name, begin, begin + 10_000) for begin, name in at]))
    assert found["devices"][0]["steps_from"] == "pattern"
    assert traced(found).total_span_ns == at[-1][0] + 10_000


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
