"""Records that cannot be true: dropped, counted, and without a trace in the sums."""

from __future__ import annotations

import pytest

from replaywatch.contract.histogram import Histogram
from tracer.fake_world import Copy, Eager, Replay, Script, World
from tracer.readings import timing, traced
from tracer.workloads import eager_steps, graph_steps


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


def test_a_window_that_brings_only_the_one_before_is_a_blind_spot(world: World) -> None:
    old = [Eager("old", -50_000_000 + i * 1000, -50_000_000 + i * 1000 + 500) for i in range(7)]
    found = world.play(Script([*old]))
    assert found["blind"] == [["kernels", "CUPTI brought 7 kernels of an earlier stretch and none of this one"]]
    assert "traced" not in found


def test_one_correlation_id_for_all_replays_is_seen_through(world: World) -> None:
    right = world.play(graph_steps(10))
    wrong = world.play(graph_steps(10, correlation=77))
    assert right["devices"][0]["correlation_trusted"]
    assert not wrong["devices"][0]["correlation_trusted"]
    assert wrong["traced"] == right["traced"]
    assert wrong["timing"] == right["timing"]


def test_work_that_is_held_back_with_what_is_queued_is_forced_out(world: World) -> None:
    script = eager_steps(6)
    until = 700_000
    found = world.play(Script(script.work, queued_until=until))
    # The buffer holds work that is not done, so it does not come by itself. What is done by now keeps its stamps.
    done = sum(isinstance(w, Eager) and w.end <= until for w in script.work)
    assert 0 < done < len(script.work)
    assert traced(found).total_kernels == done
    undone = sum(w.end > until for w in script.work if isinstance(w, Eager | Copy))
    assert found["devices"][0]["dropped"]["zero"] == undone


def test_copies_without_a_single_kernel_are_a_blind_spot_and_no_work(world: World) -> None:
    found = world.play(Script([Copy(2, 64, i * 1_000_000, i * 1_000_000 + 2000) for i in range(16)]))
    assert found["blind"] == [["kernels", "CUPTI recorded 16 copies and memory sets and no kernel"]]
    assert "traced" not in found
