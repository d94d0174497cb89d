"""vLLM's steps: mode, tokens and reason, on stand-ins with the names and signatures of 0.9, 0.11 and 0.25."""

import gc
import weakref
from itertools import count, cycle
from types import SimpleNamespace

import pytest

from probe.engines.batches import decode, scheduled
from replaywatch.contract.window import FALLBACK_REASONS
from replaywatch.probe.engines.vllm import VllmAdapter
from replaywatch.probe.engines.vllm_steps import MEASURED, ONE_IN, SILENT_STEPS, UNASKED

DECODE = (None, None)
PREFILL = (None, "prefill")
MIXED = (None, "mixed")


@pytest.fixture
def engine(parts, stand_in):
    """Builds a stand-in vLLM of 0.25 with the adapter attached before its import, as the plugin does."""
    stand_in("vllm_0_25")
    parts.adapter = parts.attach(VllmAdapter)

    def build(runner="v1", **asked):
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.worker import gpu_model_runner
        from vllm.v1.worker.gpu import model_runner

        config = EngineArgs(**asked).create_engine_config()
        if runner == "v1":
            return gpu_model_runner.GPUModelRunner(config)
        made = model_runner.GPUModelRunner(config)
        made.capture_model()
        return made

    return build


def modes():
    from vllm.config.compilation import CUDAGraphMode

    return CUDAGraphMode


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_decode_step_is_a_full_replay_with_its_padding(parts, engine, runner):
    engine(runner).execute_model(decode(3))
    taken = parts.taken()
    assert taken == {
        DECODE: {"steps": {"full": 1}, "batch_sizes": {"3": 1}, "real_tokens": 3, "padded_tokens": 4},
    }


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_batch_past_the_largest_size_is_above_the_ceiling(parts, engine, runner):
    engine(runner).execute_model(decode(9))
    taken = parts.taken()[DECODE]
    assert taken["steps"] == {"eager": 1}
    assert taken["fallbacks"] == {"above_ceiling": 1}
    assert taken["eager_batch_sizes"] == {"9": 1}
    assert taken["padded_tokens"] == 9


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize(("tokens", "mode"), [((7,), "piecewise"), ((700,), "eager")])
def test_prefill_is_never_a_fault(parts, engine, runner, tokens, mode):
    engine(runner).execute_model(scheduled(*tokens))
    taken = parts.taken()[PREFILL]
    assert taken["steps"] == {mode: 1}
    assert taken["fallbacks"] == {"prefill_by_design": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_equal_prompts_are_prefill_although_they_are_uniform(parts, engine, runner):
    engine(runner).execute_model(scheduled(16, 16, 16))
    assert set(parts.taken()) == {PREFILL}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_chunk_of_a_prompt_among_decodes_is_mixed(parts, engine, runner):
    engine(runner).execute_model(scheduled(1, 1, 5))
    assert parts.taken()[MIXED]["fallbacks"] == {"prefill_by_design": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_enforced_eager_names_itself(parts, engine, runner):
    engine(runner, enforce_eager=True).execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"forced_eager": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_mode_none_without_enforce_eager_is_mode_none(parts, engine, runner):
    engine(runner)  # imports
    engine(runner, cudagraph_mode=modes().NONE).execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"mode_none": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_piecewise_that_was_asked_for_is_told_from_a_downgrade(parts, engine, runner):
    engine(runner)
    engine(runner, cudagraph_mode=modes().PIECEWISE).execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"mode_piecewise": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_backend_that_cannot_capture_is_the_reason_for_piecewise(parts, engine, runner):
    made = engine(runner)
    config = made.vllm_config
    config.compilation_config.resolve_cudagraph_mode_and_sizes("NEVER", "FlashInferBackend")
    for part in (getattr(made, "cudagraph_dispatcher", None), getattr(made, "cudagraph_manager", None)):
        if part is not None:
            part.cudagraph_mode = config.compilation_config.cudagraph_mode
    made.execute_model(decode(2))
    taken = parts.taken()[DECODE]
    assert (taken["steps"], taken["fallbacks"]) == ({"piecewise": 1}, {"attention_backend": 1})
    observed = parts.sight.take_observations()
    assert [o["kind"] for o in observed] == ["mode_downgrade"]
    assert "FlashInferBackend" in observed[0]["detail"]


def test_cascade_attention_is_named(parts, engine):
    made = engine("v1")
    made.cascade = True
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"cascade_attention": 1}


def test_ranks_that_run_eager_pull_this_one_along_in_the_first_runner(parts, engine):
    made = engine("v1", ranks=2)
    made.agreed = {"valid_modes": {modes().NONE}}
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"ranks_disagree": 1}


def test_ranks_that_run_eager_pull_this_one_along_in_the_second_runner(parts, engine):
    made = engine("v2", ranks=2)
    from vllm.v1.worker.gpu import dp_utils

    dp_utils.RANKS_SAY = modes().NONE
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"ranks_disagree": 1}


def test_ranks_that_exclude_full_graphs_are_not_taken_for_cascade_attention(parts, engine):
    made = engine("v1", ranks=2)
    made.agreed = {"invalid_modes": {modes().FULL}}  # as 0.14 to 0.16 ask the second time
    made.execute_model(decode(2))
    taken = parts.taken()[DECODE]
    assert (taken["steps"], taken["fallbacks"]) == ({"piecewise": 1}, {"ranks_disagree": 1})


def test_cascade_attention_is_named_among_ranks_that_agree(parts, engine):
    made = engine("v1", ranks=2)
    made.cascade = True
    made.agreed = {"valid_modes": {modes().PIECEWISE}}
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["fallbacks"] == {"cascade_attention": 1}


def test_graph_manager_is_asked_nothing_by_the_probe(parts, engine):
    made = engine("v2", ranks=2)
    for batch in (decode(3), decode(9), scheduled(1, 1, 5)):
        made.execute_model(batch)
    assert made.cudagraph_manager.questions == 3
    assert parts.taken()[DECODE]["fallbacks"] == {"above_ceiling": 1}


@pytest.mark.parametrize(("tokens", "reason"), [(4, "ranks_disagree"), (40, "prefill_by_design")])
def test_draft_among_ranks_is_counted_once_with_its_own_reason(parts, engine, tokens, reason):
    made = engine("v1", drafts=3, sizes=(4, 8, 16), ranks=2)
    made.execute_model(scheduled(4, 4))
    made.agreed = {"valid_modes": {modes().NONE}}
    made._draft(tokens)
    draft = parts.taken()["draft", None]
    assert (draft["steps"], draft["fallbacks"]) == ({"eager": 1}, {reason: 1})


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_steps_are_no_drafts_once_their_hook_has_failed(parts, engine, runner):
    made = engine(runner)
    parts.adapter.steps._facts_of = lambda thing: 1 // 0
    made.execute_model(decode(9))
    parts.adapter.steps._facts_of = parts.adapter.facts_of
    made.execute_model(decode(3))
    assert parts.taken() == {}
    assert parts.sight.errors == 1


def test_full_replay_that_asks_for_a_padded_size_on_the_way_is_full(parts, engine):
    made = engine("v1")
    made.sharing = True
    made.execute_model(decode(2))
    taken = parts.taken()[DECODE]
    assert (taken["steps"], "fallbacks" in taken) == ({"full": 1}, False)


def test_own_ceiling_is_not_blamed_on_the_ranks(parts, engine):
    made = engine("v1", ranks=2)
    made.agreed = {"valid_modes": {modes().NONE}}
    made.execute_model(decode(40))
    assert parts.taken()[DECODE]["fallbacks"] == {"above_ceiling": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_speculative_batch_is_decode_and_the_draft_is_a_component(parts, engine, runner):
    made = engine(runner, drafts=3, sizes=(4, 8, 16))
    made.execute_model(scheduled(4, 4))
    made.sample_tokens(None)
    taken = parts.taken()
    assert taken[DECODE]["steps"] == {"full": 1}
    assert sum(taken["draft", None]["steps"].values()) == 1


def test_uneven_draft_lengths_are_the_speculative_width(parts, engine):
    made = engine("v2", drafts=3, sizes=(4, 8, 16))
    made.execute_model(scheduled(4, 2))
    assert parts.taken()[DECODE]["fallbacks"] == {"speculative_width": 1}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_dummy_and_profiling_runs_are_not_counted(parts, engine, runner):
    made = engine(runner)
    made._dummy_run(8)
    made._dummy_run(4, uniform_decode=True)
    assert parts.taken() == {}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_warm_up_through_the_ordinary_step_is_not_counted(parts, engine, runner):
    made = engine(runner)
    from vllm.v1.worker.gpu_worker import Worker

    worker = Worker(made.vllm_config, made)
    worker.determine_available_memory()
    worker.compile_or_warm_up_model(decode(2))
    assert parts.taken() == {}
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["steps"] == {"full": 1}


def test_idle_rank_that_runs_eager_is_observed_and_not_counted(parts, engine):
    made = engine("v2", sizes=(4, 8))
    from vllm.v1.worker.gpu_worker import Worker

    made.cudagraph_manager.compilation_config.cudagraph_capture_sizes = []
    Worker(made.vllm_config, made).execute_dummy_batch()
    assert parts.taken() == {}
    assert [o["kind"] for o in parts.sight.take_observations()] == ["idle_rank_eager"]


def test_captures_while_profiling_memory_are_throw_away(parts, engine):
    made = engine("v1")
    seen = []

    class Graph:
        pass

    graphs = [Graph(), Graph()]
    made.captured_while_profiling = lambda: seen.append(parts.ledger.capture_began(graphs[0]).throwaway)
    assert made.profile_cudagraph_memory() == 3 << 20
    seen.append(parts.ledger.capture_began(graphs[1]).throwaway)
    assert seen == [True, False]
    assert parts.adapter.memory()["estimated_bytes"] == 3 << 20


def test_memory_of_captures_for_the_estimate_is_not_the_pools(parts, engine):
    engine("v1")  # imports
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    made = GPUModelRunner(EngineArgs().create_engine_config())
    assert made.profile_cudagraph_memory() == 11 << 19
    assert parts.adapter.memory() == {"estimated_bytes": 11 << 19}
    made.capture_model()
    assert parts.adapter.memory()["pool_bytes"] == 7 << 20


def test_empty_step_counts_nothing(parts, engine):
    assert engine("v1").execute_model(scheduled()) is None
    assert parts.taken() == {}


def test_step_that_raises_is_not_counted_and_the_next_one_is(parts, engine):
    made = engine("v1")
    with pytest.raises(AttributeError):
        made.execute_model(None)
    made.execute_model(decode(1))
    assert parts.taken()[DECODE]["steps"] == {"full": 1}
    assert parts.sight.errors == 0


def test_every_reason_is_in_the_vocabulary(parts, engine):
    for runner in ("v1", "v2"):
        for asked in ({}, {"enforce_eager": True}, {"ranks": 2}, {"drafts": 2, "sizes": (3, 6)}):
            made = engine(runner, **asked)
            for batch in (decode(1), decode(5), decode(99), scheduled(3, 1), scheduled(64)):
                made.execute_model(batch)
    reasons = {r for fields in parts.taken().values() for r in fields.get("fallbacks", ())}
    assert reasons
    assert reasons <= set(FALLBACK_REASONS)


def test_modules_imported_before_the_adapter_are_hooked_too(parts, stand_in):
    stand_in("vllm_0_25")
    import vllm.v1.worker.gpu.model_runner as module
    from vllm.engine.arg_utils import EngineArgs

    parts.attach(VllmAdapter)
    made = module.GPUModelRunner(EngineArgs().create_engine_config())
    made.capture_model()
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["steps"] == {"full": 1}


def test_hooks_come_off(parts, engine):
    made = engine("v1")
    parts.adapter.remove()
    made.execute_model(decode(2))
    assert parts.taken() == {}


def old_config(**compilation):
    return SimpleNamespace(
        compilation_config=SimpleNamespace(**compilation),
        model_config=SimpleNamespace(enforce_eager=False, is_encoder_decoder=False, model="tiny"),
        parallel_config=SimpleNamespace(data_parallel_size=1),
    )


def test_descriptor_of_0_11_is_understood(parts, stand_in):
    stand_in("vllm_0_11")
    parts.attach(VllmAdapter)
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    config = old_config(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE, cudagraph_capture_sizes=[1, 2, 4])
    made = GPUModelRunner(config)
    for batch in (decode(3), decode(9), scheduled(3)):
        made.execute_model(batch)
    made._dummy_run(4)
    cascading = GPUModelRunner(config, cascade=True)
    cascading.execute_model(decode(2))
    taken = parts.taken()
    assert taken[DECODE]["steps"] == {"full": 1, "eager": 1, "piecewise": 1}
    assert taken[DECODE]["fallbacks"] == {"above_ceiling": 1, "cascade_attention": 1}
    assert taken[PREFILL]["fallbacks"] == {"prefill_by_design": 1}


def test_runner_of_0_9_without_a_dispatcher_is_understood(parts, stand_in):
    stand_in("vllm_0_9")
    adapter = parts.attach(VllmAdapter)
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    made = GPUModelRunner(old_config(use_cudagraph=True, full_cuda_graph=False, cudagraph_capture_sizes=[1, 2, 4]))
    for batch in (decode(3), decode(9)):
        made.execute_model(batch)
    made._dummy_run(4)
    taken = parts.taken()[DECODE]
    assert taken["steps"] == {"piecewise": 1, "eager": 1}
    assert taken["fallbacks"] == {"mode_piecewise": 1, "above_ceiling": 1}
    assert taken["padded_tokens"] == 4 + 9
    made.capture_model()
    assert adapter.config()["resolved_mode"] == "PIECEWISE"


def test_idle_rank_without_a_dispatcher_is_left_alone(parts, stand_in):
    stand_in("vllm_0_9")
    parts.attach(VllmAdapter)
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm.v1.worker.gpu_worker import Worker

    made = GPUModelRunner(old_config(use_cudagraph=True, full_cuda_graph=False, cudagraph_capture_sizes=[1, 2, 4]))
    Worker(made).execute_dummy_batch()
    made.execute_model(decode(2))
    assert parts.taken()[DECODE]["steps"] == {"piecewise": 1}
    assert (parts.sight.errors, parts.sight.take_observations()) == (0, [])


def test_downgrade_while_capture_begins_is_heard(parts, stand_in):
    stand_in("vllm_0_11")
    adapter = parts.attach(VllmAdapter)
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    made = GPUModelRunner(
        old_config(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE, cudagraph_capture_sizes=[1, 2, 4])
    )
    made.capture_model()
    made.execute_model(decode(2))
    assert [o["kind"] for o in parts.sight.take_observations()] == ["mode_downgrade"]
    assert "FlexAttention" in adapter.config()["mode_reason"]
    assert parts.taken()[DECODE]["fallbacks"] == {"attention_backend": 1}
    assert "vllm resolved mode" not in parts.blind()


def test_version_that_resolves_the_mode_nowhere_known_is_blind(parts, stand_in):
    stand_in("vllm_0_11")
    import vllm.v1.worker.gpu_model_runner as runner

    del runner.GPUModelRunner.initialize_cudagraph_capture
    parts.attach(VllmAdapter)
    assert "vllm resolved mode" in parts.blind()


def test_version_with_other_names_is_blind_by_name_and_keeps_working(parts, stand_in):
    stand_in("vllm_0_25")
    import vllm.v1.cudagraph_dispatcher as dispatcher
    import vllm.v1.worker.gpu_model_runner as runner

    del runner.GPUModelRunner.capture_model
    dispatcher.CudagraphDispatcher.choose = dispatcher.CudagraphDispatcher.dispatch
    del dispatcher.CudagraphDispatcher.dispatch
    parts.attach(VllmAdapter)
    assert {"vllm dispatch", "vllm graph memory"} <= parts.blind()


def with_context(batch, *lengths, old=False):
    """A scheduled batch as it comes: with what was computed of each running request before."""
    lists = SimpleNamespace(num_computed_tokens=list(lengths))
    batch.scheduled_cached_reqs = [SimpleNamespace(num_computed_tokens=n) for n in lengths] if old else lists
    return batch


@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize("old", [False, True])
def test_one_decode_step_in_some_tells_how_long_its_sequences_are(parts, engine, runner, old):
    made = engine(runner)
    for at in range(ONE_IN + 1):
        made.execute_model(with_context(decode(3), 100 + at, 200, 300, old=old))
        made.execute_model(with_context(scheduled(7), 9000, old=old))
    taken = parts.taken()
    assert (taken[DECODE]["context_tokens"], taken[DECODE]["context_sequences"]) == (1200 + ONE_IN, 6)
    assert "context_tokens" not in taken[PREFILL]


def test_lengths_that_cannot_be_read_are_left_out_and_steps_go_on(parts, engine):
    made = engine("v1")
    batch = decode(3)
    batch.scheduled_cached_reqs = SimpleNamespace(num_computed_tokens=[1, "a", 3])
    made.execute_model(batch)
    made.execute_model(decode(3))
    taken = parts.taken()[DECODE]
    assert taken["steps"] == {"full": 2}
    assert "context_tokens" not in taken
    assert parts.sight.errors == 0


def test_a_probe_that_starts_again_counts_steps_again(parts, engine):
    """The second runner's module took the hooked dispatch by name."""
    runner = engine("v2")
    for _ in range(2):
        runner.execute_model(decode(3))
        assert parts.taken()[DECODE]["steps"] == {"full": 1}
        parts.adapter.remove()
        parts.adapter = VllmAdapter(parts.port)
        parts.adapter.place()


def test_steps_that_ask_nobody_are_a_blind_spot_until_they_ask_again(parts, engine, monkeypatch):
    from vllm.v1.worker.gpu import model_runner

    runner, hooked = engine("v2"), model_runner.dispatch_cg_and_sync_dp
    monkeypatch.setattr(model_runner, "dispatch_cg_and_sync_dp", hooked.__wrapped__)
    for _ in range(SILENT_STEPS - 1):
        runner.execute_model(decode(3))
    assert UNASKED not in parts.blind()
    runner.execute_model(decode(3))
    assert UNASKED in parts.blind()
    assert parts.taken() == {}
    monkeypatch.setattr(model_runner, "dispatch_cg_and_sync_dp", hooked)
    runner.execute_model(decode(3))
    parts.port.flush()
    assert UNASKED not in parts.blind()


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_an_engine_that_is_thrown_away_goes_at_once_and_its_steps_count(parts, engine, runner):
    made = engine(runner)
    made.execute_model(decode(3))
    made.execute_model(scheduled(7))
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
    taken = parts.taken()
    assert (taken[DECODE]["steps"], taken[PREFILL]["steps"]) == ({"full": 1}, {"piecewise": 1})
    assert taken[PREFILL]["fallbacks"] == {"prefill_by_design": 1}


def test_what_hooks_take_of_a_step_is_measured_now_and_then(parts, engine, monkeypatch):
    made = engine("v1")
    made.execute_model(decode(3))
    monkeypatch.setattr(parts.adapter.steps, "_now_ns", count(step=700).__next__)
    for _ in range(ONE_IN - MEASURED):
        assert parts.port.take_took() == 0.0
        made.execute_model(decode(3))
    # Before the forward, around its dispatch, and after it.
    assert (parts.port.take_took(), parts.port.take_took()) == (2100.0, 0.0)


def test_what_a_drafts_dispatch_takes_is_measured_too(parts, engine, monkeypatch):
    made = engine("v1")
    made.execute_model(decode(3))
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    draft = CudagraphDispatcher(made.vllm_config)
    draft.dispatch(3)
    monkeypatch.setattr(parts.adapter.steps, "_now_ns", count(step=700).__next__)
    for _ in range(ONE_IN - MEASURED + 1):
        assert parts.port.take_took() == 0.0
        draft.dispatch(3)
    assert parts.port.take_took() == 700.0


@pytest.mark.parametrize(("runner", "name"), [("v1", "cudagraph_dispatcher"), ("v2", "cudagraph_manager")])
def test_a_runner_that_is_shut_down_keeps_its_last_steps(parts, engine, runner, name):
    made = engine(runner)
    for _ in range(3):
        made.execute_model(decode(3))
    made.execute_model(scheduled(7))
    setattr(made, name, None)
    taken = parts.taken()
    assert set(taken) == {DECODE, PREFILL}
    assert (taken[DECODE]["steps"], taken[PREFILL]["steps"]) == ({"full": 3}, {"piecewise": 1})


def test_a_fault_of_a_draft_leaves_the_target_alone(parts, engine, monkeypatch):
    made = engine("v1")
    made.execute_model(decode(3))
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    draft = CudagraphDispatcher(made.vllm_config)
    monkeypatch.setattr(parts.adapter.steps, "_draft", lambda *_: 1 / 0)
    for _ in range(3):
        draft.dispatch(3)
        made.execute_model(decode(3))
    taken = parts.taken()
    assert (set(taken), taken[DECODE]["steps"]) == ({DECODE}, {"full": 4})
    assert parts.sight.errors == 1


def test_after_a_fault_no_step_of_the_target_passes_for_a_drafts(parts, engine, monkeypatch):
    made = engine("v1")
    monkeypatch.setattr(parts.adapter.steps, "_judge", lambda *_: 1 / 0)
    made.execute_model(scheduled(7))
    assert parts.taken() == {}
    parts.adapter.steps._steps_heard = True  # a step under way on another thread had asked before the fault
    made.execute_model(decode(3))
    assert parts.taken() == {}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_step_from_before_the_capture_is_judged_by_what_was_ready_then(parts, engine, runner):
    made = engine(runner)
    ready = "keys_initialized" if runner == "v1" else "_graphs_captured"
    decider = made.cudagraph_dispatcher if runner == "v1" else made.cudagraph_manager
    if not hasattr(decider, ready):
        pytest.skip(f"the stand-in has no {ready}")
    setattr(decider, ready, False)
    made.execute_model(decode(9))  # above the ceiling: eager
    made.capture_model()
    setattr(decider, ready, True)
    assert parts.taken() == {}


def test_a_second_runner_without_a_manager_is_no_draft(parts, engine, monkeypatch):
    """`dispatch_cg_and_sync_dp` takes None for a manager, and answers eager."""
    made = engine("v2")
    made.execute_model(decode(3))
    from vllm.v1.worker.gpu import model_runner

    hooks, eager = parts.adapter.steps, SimpleNamespace(cg_mode=modes().NONE, num_tokens=3)
    hooked = hooks.dispatch_function(lambda *_: (eager, None), hooks._listens)
    monkeypatch.setattr(model_runner, "dispatch_cg_and_sync_dp", lambda *_, **__: hooked(None, 3, 3, 1))
    made.execute_model(decode(3))
    assert parts.taken()[DECODE]["steps"] == {"full": 1, "eager": 1}


def test_steps_are_judged_by_whoever_makes_the_window_and_a_fault_is_told_once(parts, engine, monkeypatch):
    made = engine("v1")
    monkeypatch.setattr(parts.adapter.steps, "_judge", lambda *_: 1 / 0)
    for _ in range(3):
        made.execute_model(scheduled(7))
    assert parts.sight.errors == 0
    assert parts.taken() == {}
    assert parts.sight.errors == 1
    made.execute_model(decode(3))
    assert parts.taken() == {}


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_host_between_two_forwards_is_timed(parts, engine, runner, monkeypatch):
    """Each forward ends 5 ms after its dispatch, and 2 ms later the next is dispatched."""
    made = engine(runner)

    took = cycle((5_000_000, 0))  # asked when it is dispatched, and when it is done

    def moment():
        asked_ns = parts.now_ns
        parts.now_ns += next(took)
        return asked_ns

    monkeypatch.setattr(parts.adapter.steps, "_now_ns", moment)
    for _ in range(8):
        parts.now_ns += 2_000_000
        made.execute_model(decode(3))
    parts.now_ns += 1_000_000_000  # what is judged late was not later
    parts.port.flush()
    told = parts.clock.take()[None, None]
    assert told["step_by_mode"]["full"]["s"] == told["step_by_mode"]["full"]["n"] * 7_000_000
    assert told["between_forwards"]["s"] == told["between_forwards"]["n"] * 2_000_000 > 0
