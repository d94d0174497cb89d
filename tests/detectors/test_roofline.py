"""The cost of eager and piecewise steps without a trace, beside what was measured on H200s."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detectors.made import MS, eager_work, evidence, window
from engines_gpu.frames import judgements
from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import HistogramBuilder
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Estimate, Finding, Healthy
from replaywatch.contract.window import Dispatch, Timing, Window, Workload
from replaywatch.contract.wire import Batch, decode
from replaywatch.demo.live import Shape, sizes_of
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.disabled import Disabled
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.judge import Judgement, judge
from replaywatch.detectors.partial_coverage import PartialCoverage
from replaywatch.detectors.roofline import bandwidth_of, estimate_by_roofline, size_items

LIVE = Path(__file__).parents[1] / "data" / "live"
DATA = Path(__file__).parents[2] / "docs" / "data"
BEFORE = {"vllm-eager-measured": "eager", "vllm-piecewise": "piecewise"}
SIZES: dict[str, Any] = {
    "weight_bytes": 2_200_096_768, "layers": 22, "cache_bytes_per_token": 22_528, "settings": {"max_model_len": "512"},
}  # fmt: skip
UNTRACED_RUNS, CONTEXT_RUNS = "vllm-untraced-2026-11-30.json", "vllm-contexts-2026-11-30.json"
SETTLED_RUNS = "vllm-settled-2026-11-30.json"
RUNS = {
    "vllm-default-untraced": (UNTRACED_RUNS, "default"), "vllm-eager-untraced": (UNTRACED_RUNS, "eager"),
    "vllm-ranks-untraced": (UNTRACED_RUNS, "tensor_parallel"),
    "vllm-ranks-eager-untraced": (UNTRACED_RUNS, "tensor_parallel_eager"),
    "vllm-piecewise-contexts": (CONTEXT_RUNS, "piecewise"), "vllm-default-contexts": (CONTEXT_RUNS, "default"),
    "vllm-draft-untraced": (CONTEXT_RUNS, "draft"),
    **{f"vllm-{run}-settled": (SETTLED_RUNS, run) for run in ("default", "piecewise", "draft", "ngram")},
}  # fmt: skip
# The 1.1B Llama shape of the recordings (tests/engines_gpu/scenarios.py): 16-bit weights, embeddings included.
SMALL = EngineConfig(engine="vllm", weight_bytes=2_200_000_000, layers=22, cache_bytes_per_token=22_528)
H200 = Fingerprint(gpu_model="NVIDIA H200")


def steps(
    step_ms: float, batch: int = 8, mode: str = "eager", count: int = 400, config: EngineConfig = SMALL,
    device: Fingerprint | None = H200, workload: Workload | None = None,
    shared: DeviceState | None = None, context: int | None = None, host_ms: float | None = None,
) -> Evidence:  # fmt: skip
    builder, between = HistogramBuilder(), HistogramBuilder()
    builder.add(int(step_ms * MS), count)
    between.add(int((host_ms or 0) * MS), count)
    made = window(
        dispatch=Dispatch(
            steps={mode: count},
            batch_sizes={batch: count},
            context_tokens=context and 7 * context,
            context_sequences=context and 7,
        ),
        timing=Timing(
            step_by_mode={mode: builder.build()}, between_forwards=None if host_ms is None else between.build()
        ),
        workload=workload or Workload(pod="pod-a", engine="vllm"),
        device=shared,
    )
    return replace(evidence(made), config=config, fingerprint=device)


def estimate(*args: object, **more: object) -> Estimate:
    found = estimate_by_roofline(steps(*args, **more))  # type: ignore[arg-type]
    assert found is not None
    return found


# Batch, mode, milliseconds a step and as full graphs: one run each on four H200 hosts (M15, M15b, tests/data/live).
MEASURED = (
    (8, "eager", 17.2, 2.65), (48, "eager", 18.4, 4.22), (8, "eager", 13.8, 2.32), (48, "eager", 14.3, 3.71),
    (1, "eager", 9.89, 1.54), (9, "eager", 9.51, 1.72), (48, "eager", 10.1, 2.15),
    (8, "piecewise", 6.24, 2.32), (48, "piecewise", 8.40, 3.71),
    (8, "eager", 12.2, 1.80), (48, "eager", 13.2, 2.28),
    (1, "piecewise", 4.42, 1.54), (9, "piecewise", 5.14, 1.72), (48, "piecewise", 5.47, 2.15),
)  # fmt: skip


@pytest.mark.parametrize(("batch", "mode", "step_ms", "graph_ms"), MEASURED)
def test_the_interval_holds_what_was_measured(batch: int, mode: str, step_ms: float, graph_ms: float) -> None:
    truth = 1 - graph_ms / step_ms
    for found in (estimate(step_ms, batch, mode), estimate(step_ms, batch, mode, context=80)):
        assert found.low <= truth <= found.high


def test_most_estimates_are_within_a_tenth_of_the_measured_share_where_every_step_is_eager() -> None:
    errors = sorted(
        abs(estimate(step_ms, batch, mode).ratio / (1 - graph_ms / step_ms) - 1)
        for batch, mode, step_ms, graph_ms in MEASURED
        if mode == "eager"
    )
    assert errors[len(errors) // 2] <= 0.10


def test_no_context_is_assumed_that_the_engine_does_not_allow() -> None:
    short = replace(SMALL, settings={"max_model_len": "512"})
    assert estimate(14.0, 48, config=replace(SMALL, settings={"context_length": "512"})) == estimate(
        14.0, 48, config=short
    )
    assert estimate(14.0, 48, config=short).low > estimate(14.0, 48).low + 0.05
    assert estimate(14.0, 48, config=replace(SMALL, settings={"max_model_len": "auto"})).low == estimate(14.0, 48).low


def test_a_loop_of_unknown_make_is_given_more_time_a_layer_than_a_serving_engine() -> None:
    assert estimate(8.0, config=replace(SMALL, engine="torch")).low < estimate(8.0).low - 0.05


@pytest.mark.parametrize(("step_ms", "kind"), [(30.0, "Finding"), (20.0, "Healthy")])
def test_a_large_model_that_reads_all_the_time_is_no_more_than_a_word(step_ms: float, kind: str) -> None:
    large = replace(SMALL, weight_bytes=35_000_000_000, layers=80, cache_bytes_per_token=80_000)
    told = steps(step_ms, 8, config=large, device=Fingerprint(gpu_model="NVIDIA H100 80GB HBM3"))
    verdict = Disabled().judge(told)
    assert type(verdict).__name__ == kind
    assert not isinstance(verdict, Finding) or verdict.severity == "info"


# The demo's live decoder, eager on an H200: batches of 8 to 32 in 4.03 to 3.43 ms, 1.20 to 1.57 ms as one graph.
DEMO = EngineConfig(engine="torch", **sizes_of(Shape()))
DEMO_TRUTH = ((8, 4.03, 1.20), (16, 3.45, 1.36), (32, 3.43, 1.57))


@pytest.mark.parametrize(("batch", "step_ms", "graph_ms"), DEMO_TRUTH)
def test_much_that_is_likely_lost_is_told_where_nothing_is_certain(batch: int, step_ms: float, graph_ms: float) -> None:
    """Not knowing how long its sequences are, one cannot say what a step must read; that is not health."""
    verdict = Disabled().judge(steps(step_ms, batch, config=DEMO))
    assert isinstance(verdict, Finding)
    assert verdict.estimate is not None
    assert verdict.estimate.low <= 1 - graph_ms / step_ms <= verdict.estimate.high
    assert verdict.severity == ("info" if verdict.estimate.low < 0.10 else verdict.estimate.severity)
    assert ("a trace would settle" in verdict.title) == (verdict.estimate.low < 0.05)


@pytest.mark.parametrize(("batch", "step_ms", "graph_ms"), DEMO_TRUTH)
def test_a_loop_that_tells_its_context_is_priced(batch: int, step_ms: float, graph_ms: float) -> None:
    told = steps(step_ms, batch, config=DEMO, context=Shape().kv_len)
    found, without = estimate_by_roofline(told), estimate(step_ms, batch, config=DEMO)
    assert found is not None
    assert found.low <= 1 - graph_ms / step_ms <= found.high
    assert found.low > max(0.0, without.low)
    assert abs(found.ratio - (1 - graph_ms / step_ms)) < 0.05
    assert ("context of a sequence", 512) in {(item.name, item.value) for item in size_items(told)}


def test_long_contexts_that_keep_the_device_busy_are_no_fault() -> None:
    """48 sequences of 60,000 tokens: reading their cache takes 13.5 of 20 ms, which nothing brings back."""
    long = steps(20.0, 48, context=60_000)
    assert estimate(20.0, 48).severity == "page"
    assert isinstance(Disabled().judge(long), Healthy)


def test_what_the_host_takes_between_two_forwards_no_graph_brings_back() -> None:
    """As long a step as PIECEWISE at batch 48 of vllm-piecewise-contexts, with 3.4 of 5.8 ms between forwards."""
    slow, alone = (estimate(5.8, 48, mode="piecewise", context=92, host_ms=ms) for ms in (3.4, None))
    assert alone.ratio > 0.6
    assert slow.ratio == pytest.approx(1 - 3.4 / 5.8, abs=0.04)
    assert slow.low == alone.low  # it allowed for more already
    assert slow.high == pytest.approx(1 - 1.7 / 5.8, abs=0.04)
    assert estimate(5.8, 48, mode="piecewise", context=92, host_ms=0.4) == alone
    drafts = replace(SMALL, speculative_tokens=3)  # drafts are made between forwards, and may be eager themselves
    assert estimate(5.8, 48, mode="piecewise", context=92, host_ms=3.4, config=drafts) == alone
    told = {item.name: item.value for item in size_items(steps(5.8, host_ms=3.4))}
    assert told["between two forwards"] == pytest.approx(3400, rel=0.1)


def test_how_active_the_device_is_stands_beside_it() -> None:
    told = {item.name: item.value for item in size_items(steps(14.0, shared=DeviceState(active_ratio=0.2723)))}
    assert told["device active"] == 0.2723
    assert "device active" not in {item.name for item in size_items(steps(14.0, shared=DeviceState()))}


def test_layers_that_see_the_last_tokens_only_read_no_more_than_those() -> None:
    """Of 22 layers all but three see 1,024 tokens, as in Gemma 3; 32 sequences of 60,000."""
    token = SMALL.cache_bytes_per_token or 0
    local = replace(SMALL, window_bytes_per_token=token * 19 // 22, window_tokens=1024)
    whole, less = (estimate_by_roofline(steps(20.0, 32, config=c, context=60_000)) for c in (SMALL, local))
    assert whole is not None
    assert less is not None
    assert less.low > whole.low + 0.2
    read = (2.2e9 + 32 * (60_000 * token - (60_000 - 1024) * (token * 19 // 22))) / 4.8e12
    assert less.high == pytest.approx(1 - (read + 22 * 40e-6) / 20e-3, abs=0.001)
    short, alike = (estimate_by_roofline(steps(20.0, 32, config=c, context=900)) for c in (SMALL, local))
    assert short == alike
    told = {item.name: item.value for item in size_items(steps(20.0, config=local))}
    assert told["window of some layers"] == 1024


# The shape of Qwen3-30B-A3B in 16 bits: 48 layers, 128 experts of which a token takes 8.
SPARSE = EngineConfig(
    engine="vllm", weight_bytes=61_000_000_000, layers=48, cache_bytes_per_token=98_304, expert_bytes=57_900_000_000,
    experts=128, experts_per_token=8,
)  # fmt: skip


def test_a_sparse_model_reads_the_experts_that_its_tokens_take() -> None:
    whole = replace(SPARSE, expert_bytes=None)
    for batch, at_least_less in ((1, 0.6), (8, 0.2)):
        sparse, dense = (estimate(40.0, batch, config=c) for c in (SPARSE, whole))
        # Routing is allowed for, so at one token of many layers the low end gains least.
        assert sparse.graph_step_us is not None
        assert dense.graph_step_us is not None
        assert sparse.graph_step_us < (1 - at_least_less) * dense.graph_step_us
        assert sparse.low > dense.low
        assert sparse.high >= dense.high
    told = {item.name: item.value for item in size_items(steps(40.0, config=SPARSE))}
    assert told["of them routed experts"] == 57_900_000_000
    assert "of them routed experts" not in {item.name for item in size_items(steps(40.0, config=whole))}
    many, all_of_them = (estimate(120.0, 120, config=c) for c in (SPARSE, whole))
    assert many.low < all_of_them.low  # every expert is read, and routing takes its time


def test_where_batches_of_several_ranks_meet_in_the_experts_all_are_taken_as_read() -> None:
    shared = replace(SPARSE, data_parallel_size=8)
    assert estimate(40.0, 1, config=shared).low < estimate(40.0, 1, config=SPARSE).low
    assert estimate(40.0, 1, config=shared).high == estimate(40.0, 1, config=SPARSE).high


def test_what_an_engine_tells_of_contexts_goes_before_what_it_allows() -> None:
    allowed = replace(SMALL, settings={"max_model_len": "512"})
    found = estimate_by_roofline(steps(14.0, 48, config=allowed, context=400))
    assert found == estimate_by_roofline(steps(14.0, 48, config=SMALL, context=400))
    assert found is not None
    assert found.low > estimate(14.0, 48, config=allowed).low


def test_where_kernels_were_traced_too_the_longer_graph_step_is_believed() -> None:
    """vLLM eager at batch 8: the device works 0.85 ms of 14, and a graph step takes 2.3 (83.2 % less)."""
    made = steps(13.8)
    seen = replace(made.recent, traced=replace(eager_work(steps=60, step_ms=14.5, busy_ms=0.85), method="cupti"))
    both = estimate_recoverable(replace(made, recent=seen))
    assert both is not None
    assert both.low < 0.832 < both.high
    assert abs(both.ratio / 0.832 - 1) < 0.1


def test_a_large_models_traced_kernels_narrow_what_reading_leaves_open() -> None:
    large = replace(SMALL, weight_bytes=35_000_000_000, layers=80, cache_bytes_per_token=80_000)
    made = steps(32.0, config=large, device=Fingerprint(gpu_model="NVIDIA H100 80GB HBM3"))
    seen = replace(made.recent, traced=replace(eager_work(steps=60, step_ms=32.5, busy_ms=17.0), method="cupti"))
    alone, both = estimate_by_roofline(made), estimate_recoverable(replace(made, recent=seen))
    assert alone is not None
    assert both is not None
    assert alone.severity in ("none", "info")
    assert both.severity in ("warn", "page")


def test_a_trace_of_too_few_steps_does_not_keep_it_waiting() -> None:
    made = steps(14.0)
    few = replace(made.recent, traced=eager_work(steps=3, step_ms=14.0))
    told = Disabled().judge(replace(made, recent=few))
    assert type(told).__name__ == "Finding"
    unknown = replace(made, recent=few, config=None)
    assert type(Disabled().judge(unknown)).__name__ == "WarmingUp"


@pytest.mark.parametrize(
    "unknown",
    [
        {"device": None}, {"device": Fingerprint(gpu_model="NVIDIA Tomorrow 9")}, {"config": EngineConfig(layers=22)},
        {"config": EngineConfig(weight_bytes=1)}, {"count": 20}, {"batch": 400}, {"mode": "full"},
        {"workload": Workload(engine="vllm", phase="prefill")},
        {"workload": Workload(engine="vllm", component="draft")},
        {"device": Fingerprint(gpu_model="NVIDIA H200 MIG 1g.18gb")},
        {"shared": DeviceState(processes=2)}, {"shared": DeviceState(mig_enabled=True)},
        {"config": replace(SMALL, settings={"pipeline_parallel_size": "2"})},
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_guessed(unknown: dict[str, object]) -> None:
    assert estimate_by_roofline(steps(14.0, **unknown)) is None  # type: ignore[arg-type]


def test_a_process_with_a_name_of_its_own_for_its_part_is_priced_too() -> None:
    assert estimate(14.0, workload=Workload(engine="vllm", component="decoder")) == estimate(14.0)


def test_waits_for_requests_do_not_make_steps_longer() -> None:
    builder = HistogramBuilder()
    builder.add(int(14 * MS), 300)
    builder.add(int(40 * MS), 100)
    made = steps(14.0)
    waiting = replace(made.recent, timing=Timing(step_by_mode={"eager": builder.build()}))
    alone, with_waits = estimate_by_roofline(made), estimate_by_roofline(replace(made, recent=waiting))
    assert alone is not None
    assert with_waits is not None
    assert with_waits.low == pytest.approx(alone.low, abs=0.03)


def test_ranks_that_agree_twice_a_layer_have_less_to_win() -> None:
    ranks = replace(SMALL, tensor_parallel_size=2)
    assert estimate(14.0, config=ranks).low < estimate(14.0).low - 0.05


def test_devices_are_told_by_words_not_letters() -> None:
    names = {"NVIDIA A100-SXM4-80GB": 1.94e12, "NVIDIA A10": 6.0e11, "NVIDIA H200": 4.8e12, "NVIDIA H20": 4.0e12,
             "NVIDIA L40S": 8.64e11, "NVIDIA L4": 3.0e11, "NVIDIA H100 PCIe": 2.0e12, "Tesla T4": 3.2e11}  # fmt: skip
    assert {name: bandwidth_of(name) for name in names} == names
    assert bandwidth_of(None) is None


def _recorded(name: str, mode: str) -> Evidence:
    """A recording of vLLM with its kernels taken out, as the probe sends it by default."""
    windows: list[Window] = []
    devices: dict[str, Fingerprint] = {}
    for line in gzip.decompress((LIVE / f"{name}.jsonl.gz").read_bytes()).splitlines():
        batch = decode(line)
        devices |= batch.fingerprints
        windows += [w for w in batch.windows if w.workload.phase is None and mode in (w.dispatch.steps or {})]
    bare = [replace(w, traced=None) for w in windows]
    found = gather(bare, fingerprints=devices)
    return replace(found, config=SMALL)


def test_a_recorded_eager_engine_pages_without_a_trace() -> None:
    told = judge(_recorded("vllm-eager-measured", "eager"))
    (finding,) = [f for f in told.findings if f.detector == "disabled"]
    assert (told.verdict, told.severity) == ("finding", "page")
    assert finding.estimate is not None
    assert finding.estimate.low <= 0.79 <= finding.estimate.high  # 83.2 % at batch 8, 74.0 % at 48
    assert "ms each; as one graph such a step takes about" in finding.title
    assert {"weights on this device", "layers on this device"} <= {item.name for item in finding.evidence}


def test_a_recorded_piecewise_engine_is_told_without_a_trace() -> None:
    verdict = PartialCoverage().judge(_recorded("vllm-piecewise", "piecewise"))
    assert type(verdict).__name__ == "Finding"
    estimate = verdict.estimate  # type: ignore[union-attr]
    assert estimate is not None
    assert estimate.low <= 0.59 <= estimate.high  # 62.9 % at batch 8, 55.8 % at 48


# File, batch, and what graphs bring back: the same engine's defaults against `enforce_eager`, one H200, and two.
UNTRACED = (
    ("vllm-eager-untraced", 0, 0.853), ("vllm-eager-untraced", 1, 0.827),
    ("vllm-ranks-eager-untraced", 0, 0.877), ("vllm-ranks-eager-untraced", 1, 0.840),
)  # fmt: skip


@pytest.mark.parametrize(("name", "at", "truth"), UNTRACED)
def test_an_engine_that_sends_no_kernels_is_priced_within_a_tenth(name: str, at: int, truth: float) -> None:
    for told in judged_at(name, at):
        (finding,) = [f for f in told.findings if f.detector == "disabled"]
        assert (told.verdict, told.severity) == ("finding", "page")
        assert finding.estimate is not None
        assert finding.estimate.low <= truth <= finding.estimate.high
        assert abs(finding.estimate.ratio / truth - 1) <= 0.1


@pytest.mark.parametrize(
    ("name", "detector", "truth"),
    [("vllm-eager-measured", "disabled", 0.832), ("vllm-piecewise", "partial_coverage", 0.629)],
)
def test_recordings_from_before_sizes_were_told_are_priced_with_them(name: str, detector: str, truth: float) -> None:
    """At batch 8; kernels were traced now and then."""
    batches = [decode(x) for x in gzip.decompress((LIVE / f"{name}.jsonl.gz").read_bytes()).splitlines()]
    sized = [replace(b, configs={k: replace(c, **SIZES) for k, c in b.configs.items()}) for b in batches]
    (run,) = [r for r in json.loads((DATA / "vllm-2026-11-30.json").read_text()) if r["name"] == BEFORE[name]]
    measured = run["measured"][0]
    (told,) = judgements(Recording(sized), measured["since_ns"], measured["until_ns"]).values()
    (finding,) = [f for f in told.findings if f.detector == detector]
    assert (told.severity, finding.severity) == ("page", "page")
    assert finding.estimate is not None
    assert abs(finding.estimate.ratio / truth - 1) <= 0.1


@pytest.mark.parametrize("name", ["vllm-default-untraced", "vllm-ranks-untraced"])
def test_the_same_engine_with_its_graphs_is_healthy(name: str) -> None:
    for at in (0, 1):
        assert {told.verdict for told in judged_at(name, at)} == {"healthy"}


@pytest.mark.parametrize(
    ("host", "at", "truth", "slack"),
    [("contexts", 0, 0.582, 0.01), ("contexts", 1, 0.455, 0.2), ("settled", 0, 0.408, 0.1), ("settled", 1, 0.491, 0.1)],
)
def test_a_piecewise_engine_that_tells_its_contexts_is_priced(host: str, at: int, truth: float, slack: float) -> None:
    """At batch 48 the first host kept the defaults waiting for 56 % of a step, which no graph brings back.

    Nothing was set after the second host.
    """
    (told,) = judged_at(f"vllm-piecewise-{host}", at)
    (finding,) = [f for f in told.findings if f.detector == "partial_coverage"]
    assert finding.estimate is not None
    assert finding.estimate.low <= truth <= finding.estimate.high
    assert abs(finding.estimate.ratio - truth) <= slack


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("vllm-default-contexts", 0), ("vllm-default-contexts", 1), ("vllm-draft-untraced", 0),
        ("vllm-default-settled", 0), ("vllm-default-settled", 1), ("vllm-draft-settled", 0), ("vllm-ngram-settled", 0),
    ],
)  # fmt: skip
def test_a_host_between_replays_is_not_taken_for_lost_graphs(name: str, at: int) -> None:
    for told in judged_at(name, at):
        assert {f.severity for f in told.findings} <= {"info"}
        assert {f.detector for f in told.findings} <= {"replay_gap", "graph_memory_estimate", "fallbacks"}


def judged_at(name: str, at: int) -> list[Judgement]:
    """Judgements of every rank at the end of a measured stretch (docs/data has their beginnings and ends)."""
    file, run_name = RUNS[name]
    data = json.loads((DATA / file).read_text())
    (run,) = [r for r in (data["runs"] if isinstance(data, dict) else data) if r["name"] == run_name]
    recording = Recording([decode(x) for x in gzip.decompress((LIVE / f"{name}.jsonl.gz").read_bytes()).splitlines()])
    measured = run["measured"][at]
    found = judgements(recording, measured["since_ns"], measured["until_ns"])
    assert found
    return list(found.values())


class Recording:
    """What `judgements` asks of a receiver."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches

    def windows(self, since_ns: int = 0, until_ns: int = 1 << 62) -> list[Window]:
        """Windows that lie within a stretch of time."""
        return [w for b in self.batches for w in b.windows if since_ns <= w.start_ns and w.end_ns <= until_ns]
