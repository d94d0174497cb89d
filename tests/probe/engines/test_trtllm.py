"""TensorRT-LLM's steps, on stand-ins with the signatures of 2025 and 2026."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from replaywatch.probe.engines.port import CONTEXT_ONE_IN
from replaywatch.probe.engines.trtllm import TrtllmAdapter

DECODE = (None, None)


class Engine:
    def __init__(self, parts, version):
        from tensorrt_llm._torch.pyexecutor import cuda_graph_runner, model_engine

        self.parts, self.new = parts, version.endswith("6")
        self.runners, self.engine = cuda_graph_runner, model_engine.PyTorchModelEngine()

    def runner(self, sizes=(1, 2, 4), **options):
        return self.runners.CUDAGraphRunner(self.engine, list(sizes), **options)

    def step(self, runner, size, context=0, dummies=0, idle=False, **told):
        real = size - dummies
        requests = [
            SimpleNamespace(is_cuda_graph_dummy=i >= real, is_attention_dp_dummy=idle and i < real, **told)
            for i in range(size)
        ]
        batch = SimpleNamespace(
            batch_size=size + context, can_run_cuda_graph=not context, generation_requests=requests,
            context_requests=[object()] * context,
        )  # fmt: skip
        return runner.maybe_get_cuda_graph(batch, False, None) if self.new else runner.maybe_get_cuda_graph(batch)


@pytest.fixture(params=["trtllm_2025", "trtllm_2026"])
def engine(parts, stand_in, request):
    stand_in(request.param)
    parts.adapter = parts.attach(TrtllmAdapter)
    return Engine(parts, request.param)


def test_listed_size_is_replayed_and_dummies_are_padding(parts, engine):
    engine.step(engine.runner(), 4, dummies=1)
    assert parts.taken() == {
        DECODE: {"steps": {"full": 1}, "batch_sizes": {"3": 1}, "real_tokens": 3, "padded_tokens": 4}
    }


def test_one_decode_step_in_some_tells_how_long_its_sequences_are(parts, engine):
    runner = engine.runner()
    engine.step(runner, 2, context=1, max_beam_num_tokens=7000)
    for at in range(CONTEXT_ONE_IN + 1):
        engine.step(runner, 4, dummies=1, max_beam_num_tokens=500 + at)
    taken = parts.taken()
    assert (taken[DECODE]["context_tokens"], taken[DECODE]["context_sequences"]) == (3 * (1000 + CONTEXT_ONE_IN), 6)
    assert not [place for place, fields in taken.items() if place != DECODE and "context_tokens" in fields]


def test_size_that_is_not_listed_has_no_graph(parts, engine):
    engine.step(engine.runner(), 3)
    taken = parts.taken()[DECODE]
    assert (taken["steps"], taken["fallbacks"]) == ({"eager": 1}, {"no_matching_graph": 1})


def test_size_past_the_largest_is_above_the_ceiling(parts, engine):
    engine.step(engine.runner(), 9)
    assert parts.taken()[DECODE]["fallbacks"] == {"above_ceiling": 1}


def test_context_requests_run_eager_by_design(parts, engine):
    engine.step(engine.runner(), 0, context=2)
    engine.step(engine.runner(), 2, context=2)
    taken = parts.taken()
    assert taken[None, "prefill"]["fallbacks"] == {"prefill_by_design": 1}
    assert taken[None, "mixed"]["fallbacks"] == {"prefill_by_design": 1}


def test_switched_off_graphs_are_in_steps_and_configuration(parts, engine):
    engine.step(engine.runner(enabled=False), 2)
    assert parts.taken()[DECODE]["fallbacks"] == {"mode_none": 1}
    assert parts.adapter.config()["graphs_enabled"] is False


def test_missing_padding_is_in_the_configuration(parts, engine):
    engine.step(engine.runner(), 2)
    config = parts.adapter.config()
    assert (config["padding"], config["capture_sizes"], config["max_batch_size"]) == (False, [1, 2, 4], 256)


def test_warm_up_is_not_counted(parts, engine):
    runner = engine.runner()
    engine.engine.warmup(lambda: engine.step(runner, 2))
    assert parts.taken() == {}


@pytest.mark.parametrize("dummies", [0, 3])
def test_rank_that_only_keeps_the_others_company_makes_no_steps(parts, engine, dummies):
    runner = engine.runner()
    engine.step(runner, 1 + dummies, dummies=dummies, idle=True)
    assert parts.taken() == {}
    engine.step(runner, 4, dummies=3)
    assert parts.taken()[DECODE]["real_tokens"] == 1


@pytest.mark.parametrize(
    ("works", "signal"), [("py_executor", "trtllm steps"), ("py_executor_creator", "trtllm warm-up runs")]
)
def test_module_that_does_not_come_with_the_executor_is_blind(parts, monkeypatch, works, signal):
    name = f"tensorrt_llm._torch.pyexecutor.{works}"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    parts.attach(TrtllmAdapter)
    assert parts.blind() == {signal}


def test_draft_model_is_a_component_and_leaves_the_configuration_alone(parts, engine):
    drafts = engine.engine.__class__()
    drafts.is_draft_model = True
    engine.step(engine.runner(), 2)
    engine.step(engine.runners.CUDAGraphRunner(drafts, [1, 2, 4, 8]), 2)
    taken = parts.taken()
    assert taken[DECODE]["steps"] == taken["draft", None]["steps"] == {"full": 1}
    assert parts.adapter.config()["capture_sizes"] == [1, 2, 4]


def test_runner_that_takes_anothers_place_is_learned_too(parts, engine):
    for sizes in ([1, 2], [1, 2, 4, 8]):  # the second may be where the first was in memory
        engine.step(engine.runner(sizes), 2)
        assert parts.adapter.config()["capture_sizes"] == sizes
