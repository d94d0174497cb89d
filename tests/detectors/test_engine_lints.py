"""Detectors of what engine adapters tell: fallbacks of the batch, exact sizes, compile modes, contradictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detectors.made import MS, evidence, window
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Blind, Finding, Healthy, WarmingUp
from replaywatch.contract.window import Dispatch, Observation, Timing, Workload
from replaywatch.detectors.compile_mode import CompileMode
from replaywatch.detectors.contradiction import Contradiction
from replaywatch.detectors.exact_sizes import ExactSizes
from replaywatch.detectors.fallbacks import Fallbacks
from replaywatch.detectors.overflow import Overflow
from replaywatch.detectors.padding import Padding


def stepped(reason: str, fallen: int = 20, full: int = 80, *, timed: bool = True, **fields: object):
    times = {"full": Histogram.of([3 * MS] * full), "eager": Histogram.of([15 * MS] * max(fallen, 3))}
    return window(
        dispatch=Dispatch(steps={"full": full, "eager": fallen}, fallbacks={reason: fallen} if fallen else {},
                          eager_batch_sizes={5: fallen}),
        timing=Timing(step_by_mode=times) if timed else Timing(), **fields,
    )  # fmt: skip


@pytest.mark.parametrize("reason", ["no_matching_graph", "ranks_disagree", "cascade_attention", "speculative_width"])
def test_fallbacks_of_the_batch_are_found_with_their_cost(reason):
    found = Fallbacks().judge(evidence(stepped(reason)))
    assert isinstance(found, Finding)
    assert found.is_fault
    assert found.severity == "page"
    assert reason.replace("_", " ") in found.title
    assert any(item.name == "not replayed at batch 5" for item in found.evidence)


@pytest.mark.parametrize("reason", ["prefill_by_design", "warm_up", "above_ceiling", "forced_eager", "mode_piecewise"])
def test_reasons_by_design_or_judged_elsewhere_stay_silent(reason):
    assert isinstance(Fallbacks().judge(evidence(stepped(reason))), Healthy)


def test_cost_that_was_not_timed_is_information():
    found = Fallbacks().judge(evidence(stepped("lora", timed=False)))
    assert isinstance(found, Finding)
    assert (found.severity, found.is_fault) == ("info", False)


def test_few_steps_warm_up():
    assert isinstance(Fallbacks().judge(evidence(stepped("lora", 5, 5))), WarmingUp)


def test_prefill_may_fall_back():
    seen = stepped("lora", workload=Workload(pid=1, phase="prefill"))
    assert isinstance(Fallbacks().judge(evidence(seen)), Healthy)


def test_idle_rank_is_told():
    seen = replace(stepped("lora", 0), observations=(Observation("idle_rank_eager", "x", 40),))
    found = Fallbacks().judge(evidence(seen))
    assert isinstance(found, Finding)
    assert "idle rank" in found.title


def test_exact_sizes_with_holes_are_told_with_the_setting():
    config = EngineConfig(engine="trtllm", padding=False, capture_sizes=(1, 2, 4, 8))
    found = ExactSizes().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert not found.is_fault
    assert "4 sizes up to 8" in found.title
    assert "enable_padding: true" in (found.remedy or "")


@pytest.mark.parametrize("config", [
    EngineConfig(padding=True, capture_sizes=(1, 8)), EngineConfig(padding=False, capture_sizes=(1, 2, 3)),
])  # fmt: skip
def test_padded_or_complete_sizes_are_healthy(config):
    assert isinstance(ExactSizes().judge(evidence(window(), config=config)), Healthy)


def test_compile_mode_without_graphs_is_told():
    config = EngineConfig(engine="torch", compile_mode="default")
    assert isinstance(CompileMode().judge(evidence(window(), config=config)), Finding)
    replayed = window(dispatch=Dispatch(replays=10))
    assert isinstance(CompileMode().judge(evidence(replayed, config=config)), Healthy)
    assert isinstance(CompileMode().judge(evidence(window(), config=replace(config, engine="vllm"))), Blind)


def test_contradiction_is_shown():
    seen = window(observed=(Observation("witness_contradicts", "the engine counts 0 %, the probe 90 %", 3, "agent"),))
    found = Contradiction().judge(evidence(seen))
    assert isinstance(found, Finding)
    assert "the engine counts 0 %" in found.title


def test_admission_above_the_ceiling_is_told_in_tokens_too():
    config = EngineConfig(
        engine="vllm", capture_sizes=(4, 64), capture_unit="tokens", speculative_tokens=3, max_batch_size=64
    )
    found = Overflow().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert "graphs end at 16" in found.title
    assert "(--cudagraph-capture-sizes 4 64 256, in place of any --max-cudagraph-capture-size)" in (found.remedy or "")


def test_batches_above_the_ceiling_get_a_maximum_that_holds_them():
    sizes = (1, 2, 4, 8, 16, 24, 32, 40)
    config = EngineConfig(engine="vllm", capture_sizes=sizes, capture_unit="sequences", max_batch_size=45)
    found = Overflow().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert "(--max-cudagraph-capture-size 48)" in (found.remedy or "")  # from 45 vLLM would capture to 40, as before


def ranks(version, admission=100, shared="True"):
    config = EngineConfig(
        engine="sglang", capture_sizes=(1, 256), capture_unit="sequences", max_batch_size=admission,
        data_parallel_size=4, settings={"enable_dp_attention": shared},
    )  # fmt: skip
    given = evidence(window(), config=config)
    return Overflow().judge(replace(given, fingerprint=Fingerprint(engine="sglang", engine_version=version)))


@pytest.mark.parametrize("version", ["0.4.5", "0.4.9", "0.4.9.post3"])
def test_admission_over_ranks_whose_sizes_are_summed_is_told_before_traffic(version):
    found = ranks(version)
    assert isinstance(found, Finding)
    assert "100 sequences on each of 4 ranks, whose sizes are summed to 400, are admitted" in found.title
    assert "--cuda-graph-bs 1 256 400" in (found.remedy or "")


@pytest.mark.parametrize("version", ["0.4.4", "0.4.9.post4", "0.4.10", "0.5.23", None])
def test_ranks_that_share_the_largest_size_are_not_summed(version):
    assert isinstance(ranks(version), Blind)


def test_ranks_within_the_ceiling_or_without_shared_attention_are_not_told():
    assert isinstance(ranks("0.4.9", admission=64), Blind)
    assert isinstance(ranks("0.4.9", shared="False"), Blind)


def test_prefill_sizes_in_tokens_are_not_compared_with_sequences():
    config = EngineConfig(engine="sglang", capture_sizes=(64, 2048), capture_unit="tokens", max_batch_size=4096)
    assert isinstance(Overflow().judge(evidence(window(), config=config)), Blind)


@pytest.mark.parametrize(
    ("batches", "phase", "unknown"),
    [(None, None, "batch sizes are unknown"), ({8: 900}, None, "size is unknown"), ({8: 900}, "prefill", "tokens")],
)
def test_overflow_says_what_it_cannot_see(batches, phase, unknown):
    recent = window(dispatch=Dispatch(batch_sizes=batches), workload=Workload(engine="vllm", phase=phase))
    verdict = Overflow().judge(evidence(recent))
    assert isinstance(verdict, Blind)
    assert unknown in verdict.reason


def test_padding_remedy_is_the_exact_ladder():
    config = EngineConfig(engine="vllm", capture_sizes=(1, 2, 4, 8, 16), capture_unit="sequences", max_batch_size=16)
    seen = window(dispatch=Dispatch(steps={"full": 1000}, batch_sizes={9: 1000}, real_tokens=9000, padded_tokens=16000))
    found = Padding().judge(evidence(seen, config=config))
    assert isinstance(found, Finding)
    assert "--cudagraph-capture-sizes 9 16" in (found.remedy or "")


def test_sizes_rounded_for_speculation_get_a_maximum():
    config = EngineConfig(engine="vllm", capture_sizes=(4, 8, 16, 24, 32), capture_unit="tokens",
                          speculative_tokens=3, max_batch_size=64)  # fmt: skip
    found = Overflow().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert "(--max-cudagraph-capture-size 256)" in (found.remedy or "")
