"""The ladder advisor against brute force, and its words for each engine."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Dispatch, Timing, Window, Workload
from replaywatch.detectors.evidence import gather
from replaywatch.detectors.ladder import CostModel, advise, best_ladder, price
from replaywatch.detectors.ladder_flags import advice_text, flag, from_evidence

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


@given(histograms, st.sets(st.integers(1, 64), min_size=1, max_size=4), models, st.booleans())
def test_advice_is_never_worse_and_covers_no_less(seen, current, model, padding):
    advice = advise(seen, sorted(current), replace(model, max_sizes=8), padding=padding)
    assert advice.then.step_us <= advice.now.step_us * (1 + 1e-9)
    assert max(advice.then.sizes, default=0) >= max(current)
    assert 0 <= advice.saved_ratio <= 1


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
        ("vllm", "0.9.2", "--cuda-graph-sizes 1 8 48"),
        ("vllm", None, "--cudagraph-capture-sizes 1 8 48"),
        ("sglang", "0.5.9", "--cuda-graph-bs 1 8 48"),
        ("sglang", "0.5.23", "--cuda-graph-bs-decode 1 8 48"),
        ("trtllm", "1.2.0rc3", "cuda_graph_config: {batch_sizes: [1, 8, 48], enable_padding: true}"),
        ("tgi", None, "--cuda-graphs 1,8,48"),
        ("torch", None, "graphs for the sizes 1, 8, 48"),
    ],
)
def test_flag_is_the_engines_own(engine, version, text):
    assert flag(engine, (1, 8, 48), version) == text


def evidence(batches, **config):
    snapshot = EngineConfig(engine="vllm", **config)
    print_ = Fingerprint(engine="vllm", engine_version="0.25.1")
    times = {"full": Histogram.of([2_650_000] * 5), "eager": Histogram.of([15_200_000] * 5)}
    window = Window(
        workload=Workload(pid=1, engine="vllm"), start_ns=0, end_ns=60 * 10**9, origin="probe", config_id=snapshot.id,
        fingerprint_id=print_.id, dispatch=Dispatch(steps={"full": 1}, batch_sizes=batches),
        timing=Timing(step_by_mode=times),
    )  # fmt: skip
    return gather([window], configs={snapshot.id: snapshot}, fingerprints={print_.id: print_})


def test_advice_reads_ladder_batches_and_times_from_evidence():
    text = advice_text(evidence({8: 100, 48: 100}, capture_sizes=(1, 2, 4, 8, 16, 32), max_batch_size=64))
    assert text is not None
    assert "--cudagraph-capture-sizes 8 48" in text
    assert "eager steps 50% to 0%" in text


def test_sizes_in_tokens_are_compared_in_tokens():
    advice = from_evidence(
        evidence({12: 100}, capture_sizes=(16, 32), capture_unit="tokens", speculative_tokens=3, max_batch_size=64)
    )
    assert advice is not None
    assert advice.now.eager_ratio == 1
    assert 48 in advice.then.sizes


def test_ladder_that_fits_gets_no_advice():
    assert advice_text(evidence({8: 100}, capture_sizes=(1, 8))) is None
