"""The ladder advisor against brute force, and its words for each engine."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Dispatch, GraphMemory, Timing, Window, Workload
from replaywatch.detectors.engine_flags import ceiling_flag, enable, release_of, sizes_flag
from replaywatch.detectors.evidence import gather
from replaywatch.detectors.ladder import advise, best_ladder
from replaywatch.detectors.ladder_cost import CostModel, price, savings
from replaywatch.detectors.ladder_flags import advice_text, from_evidence

models = st.builds(
    CostModel,
    fixed_us=st.floats(10, 5000),
    per_size_us=st.floats(0, 100),
    slowdown=st.floats(1, 10),
    capture_us=st.floats(0, 1e6),
    lifetime_steps=st.floats(1, 1e6),
    max_sizes=st.integers(1, 9),
)
histograms = st.dictionaries(st.integers(1, 40), st.integers(1, 1000), min_size=1, max_size=7)


def brute_force(seen, model, keep_top=None):
    sizes = sorted({*seen, *([keep_top] if keep_top else [])})
    best = float("inf")
    for k in range(min(model.rungs, len(sizes)) + 1):
        for chosen in combinations(sizes, k):
            if keep_top is None or max(chosen, default=0) >= keep_top:
                best = min(best, price(seen, chosen, model).step_us)
    return best


@given(histograms, models)
def test_ladder_costs_no_more_than_any_other(seen, model):
    found = best_ladder(seen, model)
    assert len(found.sizes) <= model.rungs
    assert found.step_us == pytest.approx(brute_force(seen, model))


@given(histograms, models, st.integers(1, 64))
def test_kept_top_is_covered_at_least_cost(seen, model, top):
    found = best_ladder(seen, model, top)
    assert found.sizes[-1] >= top
    assert found.step_us == pytest.approx(brute_force(seen, model, top))


@given(histograms, st.sets(st.integers(1, 64), min_size=1, max_size=4), models, st.booleans(), st.integers(1, 70))
def test_advice_is_never_worse_and_covers_no_less(seen, current, model, padding, admitted):
    advice = advise(seen, sorted(current), replace(model, max_sizes=8), padding=padding, keep_up_to=admitted)
    assert advice.then.step_us <= advice.now.step_us * (1 + 1e-9)
    assert max(advice.then.sizes, default=0) >= max(current)
    holds_admitted = min((size for size in current if size >= admitted), default=admitted)
    assert {size for size in current if max(seen) < size <= holds_admitted} <= {*advice.then.sizes}
    assert 0 <= advice.saved_ratio <= 1


@given(histograms, models)
def test_size_saves_what_the_list_without_it_costs_more(seen, model):
    ladder = best_ladder(seen, model)
    found = savings(seen, ladder, model)
    for size in ladder.sizes:
        without = price(seen, [s for s in ladder.sizes if s != size], model).step_us
        assert found.get(size, 0.0) == pytest.approx(max(0.0, 1 - ladder.step_us / without), abs=1e-9)


def test_published_case_of_nine_padded_to_sixteen():
    advice = advise({9: 1000}, (1, 2, 4, 8, 16), CostModel())
    assert advice.then.sizes == (9, 16)
    assert advice.now.padding_ratio == pytest.approx(1 - 9 / 16)
    assert advice.then.padding_ratio == 0


def test_fallback_past_a_low_ceiling_is_advised_away():
    advice = advise({8: 500, 48: 500}, (1, 2, 4, 8, 16, 32), CostModel(), keep_top=48)
    assert advice.now.eager_ratio == 0.5
    assert advice.then.eager_ratio == 0
    assert advice.then.sizes == (8, 48)
    assert advice.saved_ratio > 0.4


def test_memory_budget_limits_the_number_of_sizes():
    model = CostModel(size_bytes=100 << 20, budget_bytes=250 << 20)
    assert len(best_ladder(dict.fromkeys(range(1, 30), 10), model).sizes) == 2


def test_exact_sizes_without_padding_are_priced_as_fallback():
    ladder = price({3: 1, 4: 1}, (1, 2, 4), CostModel(), padding=False)
    assert ladder.eager_ratio == 0.5


def test_thousands_of_sizes_are_advised_in_time():
    seen = dict.fromkeys(range(1, 4000), 1)
    assert len(best_ladder(seen, CostModel()).sizes) <= 64


def test_nothing_seen_gives_nothing():
    assert best_ladder({}, CostModel()).sizes == ()
    assert advise({}, (), CostModel()).saved_ratio == 0


@pytest.mark.parametrize(
    ("engine", "version", "text"),
    [
        ("vllm", "0.25.1", "--cudagraph-capture-sizes 1 8 48"),
        ("vllm", "0.11.1rc2", "--cudagraph-capture-sizes 1 8 48"),
        ("vllm", "0.11.0", "--cuda-graph-sizes 1 8 48"),
        ("vllm", "v0.9.2", "--cuda-graph-sizes 1 8 48"),
        ("vllm", None, "--cudagraph-capture-sizes 1 8 48"),
        ("vllm", "0.1.dev1+gabc1234", "--cudagraph-capture-sizes 1 8 48"),
        ("vllm", "dev", "--cudagraph-capture-sizes 1 8 48"),
        ("sglang", "0.0.0.dev0", "--cuda-graph-bs-decode 1 8 48"),
        ("sglang", "0.5.9", "--cuda-graph-bs 1 8 48"),
        ("sglang", "0.5.13", "--cuda-graph-bs 1 8 48"),
        ("sglang", "0.5.14", "--cuda-graph-bs-decode 1 8 48"),
        ("sglang", "0.5.23+cu130", "--cuda-graph-bs-decode 1 8 48"),
        ("sglang", "0.5.23rc1", "--cuda-graph-bs-decode 1 8 48"),
        ("sglang", None, "--cuda-graph-bs-decode 1 8 48"),
        ("trtllm", "1.2.0rc3", "cuda_graph_config: {batch_sizes: [1, 8, 48], enable_padding: true}"),
        ("tgi", None, "--cuda-graphs 1,8,48"),
        ("torch", None, "graphs for the sizes 1, 8, 48"),
    ],
)
def test_flag_is_the_engines_own(engine, version, text):
    assert sizes_flag(engine, (1, 8, 48), version) == text


def test_single_size_is_not_given_to_a_flag_that_means_all_up_to_it():
    assert sizes_flag("vllm", (64,), "0.9.2") == "--compilation-config '{\"cudagraph_capture_sizes\": [64]}'"
    assert sizes_flag("vllm", (64,), "0.12.0") == "--cudagraph-capture-sizes 64"


GROWN = "--cudagraph-capture-sizes 1 2 4 8 16 32 48, in place of any --max-cudagraph-capture-size"


@pytest.mark.parametrize(
    ("engine", "version", "present", "text"),
    [
        ("vllm", "0.11.1", (), "--max-cudagraph-capture-size 48"),
        ("vllm", "0.33.0", (1, 2, 4, 8, 16, 24, 32), "--max-cudagraph-capture-size 48"),
        ("vllm", "0.33.0", (1, 2, 4, 8, 16, 32), GROWN),
        ("vllm", "0.33.0", (1, 2, 4, 8, 16, 32, 48), "--cudagraph-capture-sizes 1 2 4 8 16 32 48"),
        ("vllm", "0.11.0", (3, 5), "--cuda-graph-sizes 3 5 48"),
        ("vllm", "0.11.0", (1, 2, 4, 8, 16, 24, 32), "--cuda-graph-sizes 48"),
        ("sglang", "0.5.9", (1, 2, 4, 8, 12, 16, 24, 32), "--cuda-graph-max-bs 48"),
        ("sglang", "0.5.23", (4, 32), "--cuda-graph-bs-decode 4 32 48"),
        ("sglang", None, (), "--cuda-graph-max-bs-decode 48"),
        ("trtllm", None, (*range(1, 33), 64), "cuda_graph_config.max_batch_size: 48"),
        ("trtllm", None, (1, 3), "cuda_graph_config: {batch_sizes: [1, 3, 48], enable_padding: true}"),
    ],
)
def test_ceiling_is_raised_by_a_list_where_a_list_was_given(engine, version, present, text):
    assert ceiling_flag(engine, 48, version, present) == text


@pytest.mark.parametrize(
    ("engine", "version", "top", "maximum"),
    [
        ("vllm", "0.33.0", 3, 4),
        ("vllm", "0.33.0", 45, 48),
        ("vllm", "0.11.0", 50, 56),
        ("vllm", None, 250, 256),
        ("vllm", None, 300, 304),
        ("sglang", "0.5.9", 45, 48),
        ("sglang", "0.5.9", 300, 304),
        ("sglang", "0.5.9", 520, 544),
        ("sglang", "0.5.10", 45, 45),
        ("sglang", None, 300, 300),
        ("trtllm", None, 45, 45),
    ],
)
def test_maximum_is_one_from_which_the_engine_reaches_the_size(engine, version, top, maximum):
    assert ceiling_flag(engine, top, version).split()[-1] == str(maximum)


@pytest.mark.parametrize(
    ("tokens", "present", "top", "text"),
    [
        (4, (4, 8, 16, 24, 32), 48, "--max-cudagraph-capture-size 48"),
        (3, (3, 6, 9, 18, 24), 51, "--max-cudagraph-capture-size 64"),  # from 56 it ends at 48: 56 becomes 57
        (3, (3, 6, 9, 18, 24), 258, "--max-cudagraph-capture-size 272"),  # from 264 it ends at 249
        (4, (1, 2, 4, 8, 16, 24, 32), 48, "--max-cudagraph-capture-size 48"),  # before vLLM rounds them
        (4, (4, 32), 48, "--cudagraph-capture-sizes 4 32 48, in place of any --max-cudagraph-capture-size"),
    ],
)
def test_sizes_that_vllm_rounded_for_speculation_are_its_own(tokens, present, top, text):
    assert ceiling_flag("vllm", top, "0.33.0", present, tokens) == text


@pytest.mark.parametrize(
    ("engine", "version", "words"),
    [
        ("vllm", "0.12.0", "(-cc.cudagraph_mode=...)"),
        ("vllm", None, "(-cc.cudagraph_mode=...)"),
        ("vllm", "0.11.2", "(-O.cudagraph_mode=...)"),
        ("vllm", "0.9.2", "without use_cudagraph: false"),
        ("sglang", "0.5.9", "set --cuda-graph-max-bs to"),
        ("sglang", "0.5.23", "set --cuda-graph-max-bs-decode to"),
        ("sglang", None, "--cuda-graph-backend-decode=disabled"),
        ("llama.cpp", None, "GGML_CUDA_GRAPHS=ON"),
    ],
)
def test_graphs_are_turned_on_in_words_that_the_release_knows(engine, version, words):
    assert words in enable(engine, version)


@given(st.text(max_size=20))
def test_any_version_is_read(text):
    assert all(isinstance(number, int) for number in release_of(text))


def evidence(batches, before=None, captures=None, memory=None, steps=None, **config):
    snapshot = EngineConfig(**{"engine": "vllm", **config})
    print_ = Fingerprint(engine="vllm", engine_version="0.25.1")
    times = {"full": Histogram.of([2_650_000] * 5), "eager": Histogram.of([15_200_000] * 5)}
    recent = Window(
        workload=Workload(pid=1, engine="vllm"), start_ns=100 * 10**9, end_ns=160 * 10**9, origin="probe",
        config_id=snapshot.id, fingerprint_id=print_.id, timing=Timing(step_by_mode=times),
        dispatch=Dispatch(steps={"full": steps or sum(batches.values())}, batch_sizes=batches),
    )  # fmt: skip
    start = replace(
        recent, start_ns=0, end_ns=60 * 10**9, memory=memory or GraphMemory(),
        dispatch=Dispatch(batch_sizes=before or {}, captures={"ok": len(captures)} if captures else None),
        timing=Timing(capture=Histogram.of(captures) if captures else None),
    )  # fmt: skip
    configs, prints = {snapshot.id: snapshot}, {print_.id: print_}
    return gather([start, recent], configs=configs, fingerprints=prints, horizon_ns=60 * 10**9)


def test_advice_reads_ladder_batches_and_times_from_evidence():
    text = advice_text(evidence({8: 100, 48: 100}, capture_sizes=(1, 2, 4, 8, 16, 32), max_batch_size=64))
    assert text is not None
    assert "--cudagraph-capture-sizes 8 48, in place of any --max-cudagraph-capture-size (" in text
    assert "eager steps 50% to 0%" in text
    assert "padding" not in text  # 0 % before and after


def test_advice_tells_what_each_size_saves():
    text = advice_text(evidence({8: 100, 48: 100}, capture_sizes=(1, 2, 4, 8, 16, 32), max_batch_size=64))
    advice = from_evidence(evidence({8: 100, 48: 100}, capture_sizes=(1, 2, 4, 8, 16, 32), max_batch_size=64))
    assert advice is not None
    assert set(advice.saved_by_size) == {8, 48}
    assert f"of a step; 8 saves {advice.saved_by_size[8]:.0%}, 48 saves {advice.saved_by_size[48]:.0%})." in text


GENERATED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))


@pytest.mark.parametrize(
    ("fields", "up_to"),
    [
        ({}, 512),  # mixed batches are larger than what is admitted to decode
        ({"resolved_mode": "FULL_DECODE_ONLY"}, 64),
        ({"engine": "sglang"}, 64),
        ({"engine": "sglang", "max_batch_size": None}, 512),
    ],
)
def test_sizes_above_those_seen_stay_as_far_as_batches_may_grow(fields, up_to):
    advice = from_evidence(evidence({9: 1000}, capture_sizes=GENERATED, **{"max_batch_size": 60, **fields}))
    assert advice is not None
    above = {size for size in GENERATED if 9 < size <= up_to}
    assert set(advice.then.sizes) == {9, 512} | above
    assert 9 not in {size for size, saved in advice.saved_by_size.items() if saved > 0.2}  # the next is 16, not 512


def test_sizes_that_served_since_the_start_are_not_given_up():
    now = evidence({9: 1000}, before={1: 50_000}, capture_sizes=(1, 2, 4, 8, 16), max_batch_size=16)
    advice = from_evidence(now)
    assert advice is not None
    assert advice.then.sizes == (1, 9, 16)
    assert advice.now.padding_ratio == pytest.approx(1 - 9 / 16)  # told of what runs now


def test_measured_capture_time_is_weighed_against_what_a_size_saves():
    batches = {9: 1000, 10: 1000}
    cheap = from_evidence(evidence(batches, steps=10**6, capture_sizes=(1, 16), captures=[10**6] * 2))
    dear = from_evidence(evidence(batches, steps=10**6, capture_sizes=(1, 16), captures=[10**14] * 2))
    assert cheap is not None
    assert dear is not None
    assert (cheap.then.sizes, dear.then.sizes) == ((9, 10, 16), (10, 16))


def test_quiet_service_is_not_advised_to_save_captures_at_the_cost_of_steps():
    assert from_evidence(evidence({1: 10, 9: 10, 17: 10}, capture_sizes=(1, 9, 17, 32), captures=[10**12] * 4)) is None


def test_measured_costs_of_a_start_are_told():
    text = advice_text(
        evidence({9: 1000}, capture_sizes=(1, 2, 16), captures=[2 * 10**9] * 6,
                 memory=GraphMemory(pool_bytes=300 << 20))
    )  # fmt: skip
    assert text is not None
    assert "2 sizes, not 3: about 8.0 s of capture, not 12.0, and 200 MiB of graph memory, not 300." in text


def test_captures_that_were_not_seen_are_not_measured():
    text = advice_text(evidence({9: 1000}, capture_sizes=(1, 2, 16), captures=[2 * 10**9] * 2))
    assert text is not None
    assert "of capture" not in text


def test_memory_that_the_engine_set_aside_bounds_the_advice():
    memory = GraphMemory(pool_bytes=200 << 20, estimated_bytes=350 << 20)
    free = from_evidence(evidence({5: 100, 9: 100, 17: 100}, capture_sizes=(1, 32)))
    bound = from_evidence(evidence({5: 100, 9: 100, 17: 100}, capture_sizes=(1, 32), memory=memory))
    assert free is not None
    assert bound is not None
    assert (len(free.then.sizes), len(bound.then.sizes)) == (4, 3)


def test_sizes_in_tokens_are_compared_in_tokens():
    advice = from_evidence(
        evidence({12: 100}, capture_sizes=(16, 32), capture_unit="tokens", speculative_tokens=3, max_batch_size=64)
    )
    assert advice is not None
    assert advice.now.eager_ratio == 1
    assert 48 in advice.then.sizes


def test_ladder_that_fits_gets_no_advice():
    assert advice_text(evidence({8: 100}, capture_sizes=(1, 8))) is None
