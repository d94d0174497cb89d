"""Who wanted it so: votes, causes and downgrades where graphs are off."""

from __future__ import annotations

import pytest

from detectors.made import evidence, window
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.verdict import Blind, Finding, Healthy, Vote
from replaywatch.contract.window import Engine, Observation
from replaywatch.detectors.causes import eager_causes, eager_was_asked, intent_vote
from replaywatch.detectors.downgrade import Downgrade
from replaywatch.detectors.environment_switches import EnvironmentSwitches

WRAPPER = "enforce_eager=True, set by the calling code (not on the command line)"
PARTED = "the command line says cudagraph_mode=FULL, EngineArgs says enforce_eager=True"
ITSELF = "nothing asked for eager, vLLM itself turned graphs off; DeepEP: Disabling CUDA Graphs"


def off(**fields: str | None) -> EngineConfig:
    return EngineConfig(engine="vllm", graphs_enabled=False, resolved_mode="NONE", **fields)  # type: ignore[arg-type]


def vote(config: EngineConfig) -> Vote:
    return intent_vote(evidence(window(), config=config))


def test_wrapper_against_what_was_asked_is_no_intent() -> None:
    given = vote(off(requested_mode="FULL", enforced_by=WRAPPER, mode_reason=PARTED))
    assert given.ballot == "for"
    assert WRAPPER in given.reason


def test_engine_that_turned_graphs_off_itself_is_no_intent_either_way() -> None:
    given = vote(off(mode_reason=ITSELF))
    assert given.ballot == "abstains"
    assert "DeepEP" in given.reason


@pytest.mark.parametrize(
    "config", [off(requested_mode="NONE"), off(requested_mode="disabled"), off(enforced_by="the flag --enforce-eager")]
)
def test_eager_that_was_asked_for_is_intent(config: EngineConfig) -> None:
    assert vote(config).ballot == "against"
    assert isinstance(Downgrade().judge(evidence(window(), config=config)), Blind)


def test_graphs_that_run_were_asked_for() -> None:
    assert vote(EngineConfig(graphs_enabled=True)).ballot == "for"
    assert vote(EngineConfig(requested_mode="FULL")).ballot == "for"


def test_graphs_that_run_are_no_eager_that_was_asked_for() -> None:
    config = EngineConfig(engine="vllm", requested_mode="NONE", resolved_mode="FULL_DECODE_ONLY", graphs_enabled=True)
    assert not eager_was_asked(config)
    assert vote(config) == Vote("intent", "abstains", "NONE was asked for, and graphs run")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (off(mode_reason=ITSELF), f"of the default was downgraded to NONE: {ITSELF}"),
        (off(requested_mode="FULL", enforced_by=WRAPPER, mode_reason=PARTED), f"FULL was downgraded to NONE: {PARTED}"),
    ],
)
def test_graphs_that_are_off_unasked_are_a_downgrade_with_its_reason(config: EngineConfig, told: str) -> None:
    found = Downgrade().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert found.title == f"Graph mode {told}"


def test_graphs_that_are_off_for_no_known_reason_are_left_to_others() -> None:
    verdict = Downgrade().judge(evidence(window(), config=off(requested_mode="FULL")))
    assert isinstance(verdict, Blind)
    assert "why is unknown" in verdict.reason


def test_observed_downgrade_to_none_is_found() -> None:
    seen = window(observed=(Observation("mode_downgrade", "Pooling models do not support graphs", 1, "log"),))
    found = Downgrade().judge(evidence(seen, config=off(requested_mode="FULL")))
    assert isinstance(found, Finding)
    assert "Pooling" in found.title


def test_reason_of_the_engine_is_the_cause() -> None:
    assert eager_causes(evidence(window(), config=off(mode_reason=ITSELF)))[0].text == ITSELF


@pytest.mark.parametrize(
    ("engine", "environment"),
    [
        ("vllm", {"CUDA_MODULE_LOADING": "LAZY"}),
        ("torch", {"TORCHINDUCTOR_CUDAGRAPHS": "1"}),
        ("torch", {"TORCH_COMPILE_DISABLE": "0"}),
        ("torch", {"CUDA_LAUNCH_BLOCKING": "0"}),
        ("vllm", {"GGML_CUDA_DISABLE_GRAPHS": "1"}),
        ("vllm", {"CUDA_GRAPHS": "0"}),
        ("tgi", {"CUDA_GRAPHS": "1,2,4"}),
    ],
)
def test_harmless_values_and_variables_of_other_engines_are_no_cause(
    engine: Engine, environment: dict[str, str]
) -> None:
    config = EngineConfig(engine=engine, environment=environment)
    assert not any("is set" in cause.text for cause in eager_causes(evidence(window(), config=config)))


@pytest.mark.parametrize(
    ("engine", "environment"),
    [
        ("torch", {"TORCH_COMPILE_DISABLE": "1"}),
        ("unknown", {"TORCHDYNAMO_DISABLE": "1"}),
        ("vllm", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
        ("sglang", {"CUDA_LAUNCH_BLOCKING": "1"}),
        ("tgi", {"CUDA_GRAPHS": "0"}),
        ("llama.cpp", {"GGML_CUDA_DISABLE_GRAPHS": "0"}),
    ],
)
def test_harmful_values_are_a_cause(engine: Engine, environment: dict[str, str]) -> None:
    config = EngineConfig(engine=engine, environment=environment)
    [(name, value)] = environment.items()
    assert eager_causes(evidence(window(), config=config))[0].text.startswith(f"{name}={value} is set")
    found = EnvironmentSwitches().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert (found.severity, found.is_fault) == ("info", False)
    assert name in (found.remedy or "")


def test_several_switches_are_one_finding() -> None:
    config = EngineConfig(engine="torch", environment={"TORCHDYNAMO_DISABLE": "1", "CUDA_LAUNCH_BLOCKING": "1"})
    found = EnvironmentSwitches().judge(evidence(window(), config=config))
    assert isinstance(found, Finding)
    assert len(found.evidence) == 2


def test_environment_without_harm_is_healthy_and_an_unseen_one_blind() -> None:
    config = EngineConfig(engine="vllm", environment={"CUDA_MODULE_LOADING": "LAZY"})
    assert isinstance(EnvironmentSwitches().judge(evidence(window(), config=config)), Healthy)
    assert isinstance(EnvironmentSwitches().judge(evidence(window())), Blind)
