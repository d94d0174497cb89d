"""SGLang's steps and configuration, on stand-ins with the names and signatures of 0.5.9 and 0.5.23."""

import gc
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest

from replaywatch.probe.engines.port import CONTEXT_ONE_IN
from replaywatch.probe.engines.sglang import SglangAdapter

DECODE = (None, None)
AHEAD = 4  # tokens that a draft model is ahead


class Batch(SimpleNamespace):
    """A batch; the engine's own can be referred to weakly, a plain namespace cannot."""


class Engine:
    """The stand-in's classes, and batches for them."""

    def __init__(self, parts, version):
        from sglang.srt.model_executor import model_runner

        self.parts, self.version, self.module = parts, version, model_runner
        self.extra = (True,) if version.endswith("9") else ()

    def runner(self, sizes=(1, 2, 4), prefill=None, draft=False, server=None, **switches):
        decode = self.module.DecodeGraphs(list(sizes), **switches) if sizes else None
        prefill = self.module.PrefillGraphs(list(prefill)) if prefill else None
        given = SimpleNamespace(
            model_path="/models/tiny", dp_size=1, tp_size=1, disable_cuda_graph=not sizes, **(server or {})
        )
        return self.module.ModelRunner(given, decode, prefill, draft)

    def step(self, runner, mode, batch, **fields):
        return runner._forward_raw(self.batch(mode, batch, **fields), *self.extra)

    def batch(self, mode, batch, **fields):
        return Batch(forward_mode=self.module.ForwardMode[mode], batch_size=batch, **fields)

    def drafter(self, sizes):
        return Drafter(self, sizes)


class Drafter:
    """A worker with a draft model and its graphs, if it has any."""

    def __init__(self, engine, sizes):
        from sglang.srt.speculative.eagle_draft_cuda_graph_runner import EAGLEDraftCudaGraphRunner

        self.engine, self.runner = engine, engine.runner(sizes=(), draft=True)
        self.graphs = EAGLEDraftCudaGraphRunner(list(sizes), self.draft_forward) if sizes else None

    def draft(self, batch, asks=1, mode="DECODE"):
        forward_batch = self.engine.batch(mode, batch)
        ask = self.graphs and (getattr(self.graphs, "can_run_graph", None) or self.graphs.can_run)
        answers = [ask(forward_batch) for _ in range(asks)] if ask else [False]
        if not answers[-1]:
            self.draft_forward(forward_batch)

    def draft_forward(self, forward_batch):
        for _ in range(AHEAD - 1):
            self.runner._forward_raw(forward_batch, *self.engine.extra)

    def capture(self):
        one = getattr(self.graphs, "capture_one_shape", None) or self.graphs.capture_one_batch_size
        for size in self.graphs.capture_bs:
            one(size, self.engine.batch("DECODE", size))


@pytest.fixture(params=["sglang_0_5_9", "sglang_0_5_23"])
def engine(parts, stand_in, request):
    stand_in(request.param)
    parts.adapter = parts.attach(SglangAdapter)
    return Engine(parts, request.param)


def fallbacks(parts, place=DECODE):
    return parts.taken()[place].get("fallbacks")


def test_replayed_decode_step_carries_the_size_it_was_padded_to(parts, engine):
    engine.step(engine.runner(), "DECODE", 3)
    assert parts.taken() == {
        DECODE: {"steps": {"full": 1}, "batch_sizes": {"3": 1}, "real_tokens": 3, "padded_tokens": 4}
    }


def test_one_decode_step_in_some_tells_how_long_its_sequences_are(parts, engine):
    runner = engine.runner()
    engine.step(runner, "EXTEND", 1, extend_num_tokens=500, seq_lens_sum=500)
    for at in range(CONTEXT_ONE_IN + 1):
        engine.step(runner, "DECODE", 3, seq_lens_sum=600 + at)
    taken = parts.taken()
    assert (taken[DECODE]["context_tokens"], taken[DECODE]["context_sequences"]) == (1200 + CONTEXT_ONE_IN, 6)
    assert not [place for place, fields in taken.items() if place != DECODE and "context_tokens" in fields]


@pytest.mark.parametrize("told", [None, SimpleNamespace(item=None)])
def test_a_length_that_is_no_number_on_the_host_is_left_alone(parts, engine, told):
    engine.step(engine.runner(), "DECODE", 3, seq_lens_sum=told)
    taken = parts.taken()[DECODE]
    assert taken["steps"] == {"full": 1}
    assert "context_tokens" not in taken
    assert parts.sight.errors == 0


def test_batch_past_the_ceiling_is_eager(parts, engine):
    engine.step(engine.runner(), "DECODE", 5)
    taken = parts.taken()[DECODE]
    assert (taken["steps"], taken["fallbacks"]) == ({"eager": 1}, {"above_ceiling": 1})


def test_ranks_that_gather_name_the_size_over_all_ranks(parts, engine):
    runner = engine.runner(require_mlp_tp_gather=True)
    engine.step(runner, "DECODE", 2, global_num_tokens_cpu=[2, 9])
    taken = parts.taken()[DECODE]
    assert (taken["fallbacks"], taken["eager_batch_sizes"]) == ({"above_ceiling": 1}, {"9": 1})


def test_exact_sizes_without_padding_leave_holes(parts, engine):
    engine.step(engine.runner(disable_padding=True), "DECODE", 3)
    assert fallbacks(parts) == {"no_matching_graph": 1}


def test_rank_that_cannot_stops_the_others(parts, engine):
    runner = engine.runner(require_mlp_sync=True)
    engine.step(runner, "DECODE", 2, can_run_dp_cuda_graph=False)
    assert fallbacks(parts) == {"ranks_disagree": 1}


def test_other_speculative_width_is_named(parts, engine):
    runner = engine.runner()
    graphs = runner.decode_cuda_graph_runner if hasattr(runner, "decode_cuda_graph_runner") else runner.graph_runner
    type(graphs).refuse = lambda self, forward_batch: False
    for name in ("can_run", "can_run_graph"):
        if hasattr(type(graphs), name):
            setattr(type(graphs), name, type(graphs).refuse)
    engine.step(runner, "TARGET_VERIFY", 2, spec_info=SimpleNamespace(num_tokens_per_req=4))
    assert fallbacks(parts) == {"speculative_width": 1}


def test_graphs_that_were_switched_off_are_forced_eager(parts, engine, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["launch_server", "--disable-cuda-graph"])
    engine.step(engine.runner(sizes=()), "DECODE", 2)
    assert fallbacks(parts) == {"forced_eager": 1}
    config = parts.adapter.config()
    assert (config["graphs_enabled"], config["enforced_by"]) == (False, "the flag --disable-cuda-graph")
    assert (config["requested_mode"], config["resolved_mode"]) == ("DISABLED", "DISABLED")


def test_prefill_is_by_design_with_graphs_and_without(parts, engine):
    runner = engine.runner(prefill=(64, 128))
    engine.step(runner, "EXTEND", 2, extend_num_tokens=100)
    engine.step(runner, "EXTEND", 2, extend_num_tokens=1000)
    taken = parts.taken()[None, "prefill"]
    assert taken["steps"] == {"piecewise": 1, "eager": 1}
    assert taken["fallbacks"] == {"prefill_by_design": 2}
    assert taken["padded_tokens"] == 128 + 1000


def test_idle_ranks_are_not_counted(parts, engine):
    engine.step(engine.runner(), "IDLE", 0)
    assert parts.taken() == {}


def test_draft_model_is_a_component(parts, engine):
    drafter = engine.drafter((1, 2))
    drafter.draft(2)
    drafter.draft(3)
    taken = parts.taken()
    assert set(taken) == {("draft", None)}
    assert taken["draft", None]["steps"] == {"full": 1, "eager": 1}
    assert taken["draft", None]["fallbacks"] == {"above_ceiling": 1}


def test_captures_of_draft_graphs_are_no_steps(parts, engine):
    drafter = engine.drafter((1, 2, 4))
    drafter.capture()
    assert parts.taken() == {}
    drafter.draft(1)
    assert parts.taken()["draft", None]["steps"] == {"full": 1}


def test_each_batch_is_drafted_once_whatever_is_asked_and_run_for_it(parts, engine):
    drafter = engine.drafter((1, 2))
    for batch in (1, 1, 1, 3):
        drafter.draft(batch, asks=2)
    taken = parts.taken()["draft", None]
    assert (taken["steps"], taken["fallbacks"]) == ({"full": 3, "eager": 1}, {"above_ceiling": 1})


def test_draft_without_graphs_is_one_eager_step_for_each_batch(parts, engine):
    drafter = engine.drafter(())
    drafter.draft(2)
    drafter.draft(2)
    assert parts.taken()["draft", None]["steps"] == {"eager": 2}


def test_drafts_of_idle_ranks_are_not_counted(parts, engine):
    engine.drafter((1, 2)).draft(0, mode="IDLE")
    assert parts.taken() == {}


def test_a_batch_that_was_drafted_for_is_not_kept_alive(parts, engine):
    drafter = engine.drafter((1, 2))
    forward_batch = engine.batch("DECODE", 3)
    drafter.draft_forward(forward_batch)
    gone = weakref.ref(forward_batch)
    del forward_batch
    gc.collect()
    assert gone() is None


def test_a_target_that_runs_one_batch_again_and_again_counts_each_run(parts, engine):
    runner, forward_batch = engine.runner(), engine.batch("DECODE", 2)
    for _ in range(3):
        runner._forward_raw(forward_batch, *engine.extra)
    assert parts.taken()[DECODE]["steps"] == {"full": 3}


def test_model_runner_that_does_not_come_with_the_attention_registry_is_blind(parts, stand_in, monkeypatch):
    stand_in("sglang_0_5_23")
    name = "sglang.srt.layers.attention.attention_registry"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    parts.attach(SglangAdapter)
    assert parts.blind() == {"sglang steps"}
    __import__("sglang.srt.model_executor.model_runner")
    assert parts.blind() == set()


def test_renamed_captures_of_draft_graphs_are_blind(parts, stand_in):
    stand_in("sglang_0_5_23")
    import sglang.srt.speculative.eagle_draft_cuda_graph_runner as module

    module.EAGLEDraftCudaGraphRunner.record = module.EAGLEDraftCudaGraphRunner.capture_one_shape
    del module.EAGLEDraftCudaGraphRunner.capture_one_shape
    parts.attach(SglangAdapter)
    assert "sglang draft captures" in parts.blind()


def test_admission_and_ceiling_are_in_the_configuration(parts, engine):
    engine.step(engine.runner(sizes=(1, 2, 32)), "DECODE", 1)
    config = parts.adapter.config()
    assert (config["max_batch_size"], config["max_capture_size"], config["capture_sizes"]) == (4096, 32, [1, 2, 32])
    assert (config["resolved_mode"], config["padding"]) == ("FULL", True)
    assert parts.adapter.workload() == {"model_name": "tiny", "rank": 0}


def test_other_class_names_are_blind(parts, stand_in):
    stand_in("sglang_0_5_23")
    import sglang.srt.model_executor.model_runner as module

    module.Runner = module.ModelRunner
    del module.ModelRunner
    parts.attach(SglangAdapter)
    assert "sglang steps" in parts.blind()


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ({}, 8),
        ({"dp_size": 8}, 8),
        ({"dp_size": 8, "enable_dp_attention": True}, 1),
        ({"dp_size": 2, "enable_dp_attention": True}, 4),
        ({"dp_size": 16, "enable_dp_attention": True}, 1),
    ],
)
def test_heads_are_shared_by_the_ranks_of_one_sequence(parts, engine, given, ranks):
    runner = engine.runner()
    vars(runner.server_args).update(given)
    runner.tp_size = 8
    heads = {"num_hidden_layers": 2, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
    runner.model_config = SimpleNamespace(hf_text_config=SimpleNamespace(**heads))
    engine.step(runner, "DECODE", 3)
    assert parts.adapter.config()["cache_bytes_per_token"] == 2 * 2 * (8 // ranks) * 128 * 2


@pytest.mark.parametrize("version", ["sglang_0_5_9", "sglang_0_5_23"])
def test_the_host_between_two_forwards_is_timed(parts, stand_in, version, monkeypatch):
    """Each forward takes 5 ms, and 2 ms later the next begins; a probe that starts again goes on with it."""
    stand_in(version)
    engine = Engine(parts, version)
    forward = engine.module.ModelRunner._forward_raw

    def slow(*args):
        parts.now_ns += 5_000_000
        return forward(*args)

    monkeypatch.setattr(engine.module.ModelRunner, "_forward_raw", slow)
    runner = engine.runner()
    for _ in range(2):
        adapter = parts.attach(SglangAdapter)
        for _ in range(8):
            parts.now_ns += 2_000_000
            engine.step(runner, "DECODE", 3)
        told = parts.clock.take()[None, None]
        assert told["step_by_mode"]["full"]["s"] == told["step_by_mode"]["full"]["n"] * 7_000_000
        assert told["between_forwards"]["s"] == told["between_forwards"]["n"] * 2_000_000 > 0
        adapter.remove()
