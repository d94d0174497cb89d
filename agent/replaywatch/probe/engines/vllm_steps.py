"""Wrappers around vLLM's dispatch and step: which way each step went, and why.

The dispatcher's answers are noted while the runner works on a real batch and read when it is done: where ranks must
agree it is asked twice, the first time what this rank would do by itself, and only the last answer is what runs.
Warm-up, profiling, capture and dummy runs are never counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from replaywatch.probe.engines import vllm_reasons as reasons
from replaywatch.probe.engines.port import EngineAdapter
from replaywatch.probe.engines.vllm_config import mode_name
from replaywatch.probe.engines.vllm_reasons import Asked, Facts
from replaywatch.probe.patching import Function, Switch

# Who was asked, with what, what came back, and in the second runner what it was before the ranks agreed, if they did.
Answer = tuple[Any, tuple[Any, ...], Mapping[str, Any], Any, Any]

SILENT_STEPS = 50
UNASKED = "vllm steps without a dispatch"
NOT_ASKED = "steps run, and no dispatcher that is hooked is asked how; they are not counted"
_MODES = {"NONE": "eager", "PIECEWISE": "piecewise", "FULL": "full"}


class _Here(threading.local):
    """What this thread is doing: the answers of a step under way, or nothing that counts.

    Shape: `alone` what this rank would do by itself, of the second runner; `wish` the same question of a draft model in
    the first runner; `asked_ns` when the step under way was dispatched first.
    """

    answers: list[Answer] | None = None
    asked_ns = 0
    alone: Any = None
    wish: Answer | None = None
    quiet = 0
    idle = False


class StepHooks:
    """Makes the wrappers. `facts_of` gives what is known of the engine that a runner belongs to, `meet` hears of
    a runner that makes its first step under these hooks.
    """

    def __init__(self, adapter: EngineAdapter, facts_of: Callable[[Any], Facts], meet: Callable[[Any], None]) -> None:
        self._adapter, self._facts_of, self._meet = adapter, facts_of, meet
        self._here = _Here()
        self._now_ns = adapter.port.clock.now_ns
        self._words: dict[Any, str] = {}
        # Without the main model's steps its answers would pass for those of a draft model.
        self._steps_heard = False
        self._met = 0  # id of the runner whose engine is known
        self._unanswered = 0  # steps since the last answer
        self._listens = Switch()

    def execute_model(self, original: Function, on: Switch) -> Function:
        """Around `GPUModelRunner.execute_model` of both runners: one call is one step."""
        hooks, here, finish, fault = self, self._here, self._finish, self._adapter.port.sight.fault

        def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not on or here.quiet or kwargs.get("dummy_run") or (len(args) > 2 and args[2] is True):
                return original(self, *args, **kwargs)
            hooks._steps_heard = True
            outer = here.answers
            answers: list[Answer] = []
            here.answers = answers
            try:
                result = original(self, *args, **kwargs)
            finally:
                here.answers = outer
            if answers:
                try:
                    finish(self, args[0] if args else kwargs["scheduler_output"], answers)
                except Exception as error:  # the probe's border
                    on.off()
                    hooks._steps_heard = False
                    fault("vllm steps", error)
            elif hooks._unanswered < SILENT_STEPS and hooks._listens:
                output = args[0] if args else kwargs.get("scheduler_output")
                hooks._adapter.guarded(UNASKED, hooks._listens, hooks._unheard, output)
            return result

        return execute_model

    def _unheard(self, output: Any) -> None:
        """A step in which nobody was heard to ask how it should run: now and then one is empty, one by one none is."""
        if not getattr(output, "total_num_scheduled_tokens", 0):
            return
        self._unanswered += 1
        if self._unanswered == SILENT_STEPS:
            self._adapter.port.sight.blind(UNASKED, NOT_ASKED)

    def dispatch(self, original: Function, on: Switch) -> Function:
        """Around `CudagraphDispatcher.dispatch` of the first runner and of draft models."""
        note = self._note

        def dispatch(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if on:
                note(on, (self, args, kwargs, result, None))
            return result

        return dispatch

    def dispatch_function(self, original: Function, on: Switch) -> Function:
        """Around `dispatch_cg_and_sync_dp(manager, ...)`, whose answer the ranks have agreed on."""
        here, note = self._here, self._note

        def dispatch_cg_and_sync_dp(*args: Any, **kwargs: Any) -> Any:
            here.alone = None
            result = original(*args, **kwargs)
            if on:
                manager = args[0] if args else kwargs.get("cudagraph_manager")
                note(on, (manager, args[1:], kwargs, result[0], here.alone))
            return result

        return dispatch_cg_and_sync_dp

    def agreement(self, original: Function, on: Switch) -> Function:
        """Around `sync_cudagraph_and_dp_padding(manager, desired, ...)`: what this rank would do by itself."""
        here = self._here

        def sync_cudagraph_and_dp_padding(*args: Any, **kwargs: Any) -> Any:
            if on:
                here.alone = args[1] if len(args) > 1 else kwargs.get("desired_batch_desc")
            return original(*args, **kwargs)

        return sync_cudagraph_and_dp_padding

    def forward_context(self, original: Function, on: Switch) -> Function:
        """Around `set_forward_context` as the runner of 0.9 and 0.10.0 calls it, which have no dispatcher."""
        here, now_ns = self._here, self._now_ns

        def set_forward_context(*args: Any, **kwargs: Any) -> Any:
            if on and here.answers is not None:
                if not here.answers:
                    here.asked_ns = now_ns()
                here.answers.append((None, (), kwargs, None, None))
            return original(*args, **kwargs)

        return set_forward_context

    def quietly(self, original: Function, on: Switch) -> Function:
        """Around warm-up, profiling and dummy runs: nothing inside counts."""
        here = self._here

        def run(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            here.quiet += 1
            try:
                return original(*args, **kwargs)
            finally:
                here.quiet -= 1

        return run

    def aside(self, original: Function, on: Switch) -> Function:
        """Around a part of a step that asks the dispatcher for a size and not for the way the step will go."""
        here = self._here

        def run(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            outer, here.answers, asked_ns = here.answers, [], here.asked_ns
            try:
                return original(*args, **kwargs)
            finally:
                here.answers, here.asked_ns = outer, asked_ns

        return run

    def idle_batch(self, original: Function, on: Switch) -> Function:
        """Around `Worker.execute_dummy_batch`: an idle rank keeps the others company; eager there slows all down."""
        here, adapter, idle = self._here, self._adapter, self._idle

        def execute_dummy_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
            outer, here.answers = here.answers, []
            quiet, here.quiet = here.quiet, 0
            here.idle = True
            try:
                result = original(self, *args, **kwargs)
                answers = here.answers or []
            finally:
                here.answers, here.quiet, here.idle = outer, quiet, False
            if on and answers:
                adapter.guarded("vllm idle ranks", on, idle, answers[-1])
            return result

        return execute_dummy_batch

    def dummy_run(self, original: Function, on: Switch) -> Function:
        """Around the runners' `_dummy_run`: quiet, except where an idle rank's dummy batch is looked at."""
        here, quietly = self._here, self.quietly(original, on)

        def _dummy_run(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if not on or here.idle else quietly(*args, **kwargs)

        return _dummy_run

    def _note(self, on: Switch, answer: Answer) -> None:
        """Keep an answer for the step under way; outside of one a draft model asked, unless nothing counts."""
        here = self._here
        if here.answers is not None:
            if not here.answers:
                here.asked_ns = self._now_ns()
            here.answers.append(answer)
        elif not here.quiet and self._steps_heard:
            self._adapter.guarded("vllm draft steps", on, self._draft, answer)

    def _finish(self, runner: Any, output: Any, answers: list[Answer]) -> None:
        """Count the step that a runner has just made."""
        if id(runner) != self._met:
            self._met = id(runner)
            self._adapter.guarded("vllm resolved mode", Switch(), self._meet, runner)
        if self._unanswered:
            self._heard_again()
        who, _, _, result, _ = answers[-1]
        if result is not None and len(answers) == 1:
            tokens, requests = output.total_num_scheduled_tokens, len(output.num_scheduled_tokens)
            if tokens == requests and self._word(result) == "full" and who is _decider(runner):
                padded = _padded(result, tokens)
                asked_ns = self._here.asked_ns
                component = _component(runner)
                self._adapter.port.step("full", requests, tokens, padded, None, "decode", component, asked_ns=asked_ns)
                self._adapter.note_context(_context_of, output)
                return
        target = _decider(runner)
        own = [a for a in answers if a[0] is None or a[0] is target]
        for answer in answers:
            if answer[0] is not None and answer[0] is not target:
                self._draft(answer)
        if own:
            self._judge(runner, output, own, target)

    def _heard_again(self) -> None:
        if self._unanswered >= SILENT_STEPS:
            self._adapter.port.sight.clear(UNASKED)
        self._unanswered = 0

    def _judge(self, runner: Any, output: Any, own: list[Answer], target: Any) -> None:
        """Count a step that may not be a full replay of a decode batch, with the reason."""
        scheduled = output.num_scheduled_tokens
        tokens, requests = output.total_num_scheduled_tokens, len(scheduled)
        facts = self._facts_of(target if target is not None else runner)
        mode, asked, padded = self._outcome(runner, own, tokens)
        phase = reasons.phase_of(scheduled, tokens, requests, asked.uniform, facts.decode_tokens)
        facts.ranks = mode != "full" and self._overruled(own)
        why = reasons.reason(mode, asked, phase, facts)
        if why != "warm_up":
            asked_ns = self._here.asked_ns
            self._adapter.port.step(mode, requests, tokens, padded, why, phase, _component(runner), asked_ns=asked_ns)
            if phase == "decode":
                self._adapter.note_context(_context_of, output)

    def _outcome(self, runner: Any, own: list[Answer], tokens: int) -> tuple[str, Asked, int]:
        """Mode and padded tokens of the last answer; the question of the first, which is this rank's own."""
        _, _, kwargs, result, _ = own[-1]
        if result is None:
            return reasons.without_dispatcher(runner, kwargs)
        return self._word(result), reasons.asked_of(*own[0][:4]), _padded(result, tokens)

    def _draft(self, answer: Answer) -> None:
        """Count a step of a draft model, which asks a dispatcher of its own, twice where the ranks must agree."""
        who, _, kwargs, result, _ = answer
        wish, self._here.wish = self._here.wish, None
        if who is None or kwargs.get("need_eager"):
            return
        if _to_be_agreed(who, kwargs):
            self._here.wish = answer
            return
        own = [wish, answer] if wish is not None and wish[0] is who else [answer]
        facts = self._facts_of(who)
        asked = reasons.asked_of(*own[0][:4])
        mode = self._word(result)
        facts.ranks = self._overruled(own)
        phase = "mixed" if facts.max_size is not None and asked.num_tokens > facts.max_size else "decode"
        why = reasons.reason(mode, asked, phase, facts)
        if why != "warm_up":
            padded = _padded(result, asked.num_tokens)
            self._adapter.port.step(mode, None, asked.num_tokens, padded, why, None, "draft")

    def _idle(self, answer: Answer) -> None:
        who, _, _, result, _ = answer
        if result is None:  # to 0.10.0 nobody is asked, and nothing is known of the batch
            return
        facts = self._facts_of(who)
        if self._word(result) == "eager" and facts.ready and facts.mode != "NONE":
            self._adapter.port.sight.observe(
                "idle_rank_eager", "an idle rank ran its dummy batch eager, although its graphs are on", "vllm"
            )

    def _overruled(self, own: list[Answer]) -> bool:
        """Whether the ranks agreed on less than this rank would have done by itself."""
        who, _, _, result, alone = own[-1]
        if alone is None and len(own) > 1 and _ranks(who) > 1:
            alone = own[0][3]  # the first runner asks anew once the ranks have agreed
        return alone is not None and self._word(alone) != self._word(result)

    def _word(self, result: Any) -> str:
        """Mode of an answer: a pair of mode and descriptor, or a descriptor with its mode."""
        mode = result[0] if isinstance(result, tuple) else result.cg_mode
        word = self._words.get(mode)
        if word is None:
            word = self._words[mode] = _MODES.get(mode_name(mode) or "", "eager")
        return word


def _decider(runner: Any) -> Any:
    """What decides for a runner's own model: the dispatcher of the first kind, the graph manager of the second."""
    return getattr(runner, "cudagraph_manager", None) or getattr(runner, "cudagraph_dispatcher", None)


def _context_of(output: Any) -> tuple[int, int] | None:
    """Computed tokens of the running requests of a batch: lists since 0.9.2, an object for each request before."""
    cached = getattr(output, "scheduled_cached_reqs", None)
    if isinstance(cached, list):
        lengths = [request.num_computed_tokens for request in cached]
    else:
        lengths = getattr(cached, "num_computed_tokens", None) or []
    return (sum(lengths), len(lengths)) if lengths and all(type(n) is int for n in lengths) else None


def _component(runner: Any) -> str | None:
    return "target" if getattr(runner, "speculative_config", None) is not None else None


def _padded(result: Any, tokens: int) -> int:
    descriptor = result[1] if isinstance(result, tuple) else result
    return max(tokens, int(descriptor.num_tokens)) if descriptor is not None else tokens


def _ranks(who: Any) -> int:
    config = getattr(getattr(who, "vllm_config", None), "parallel_config", None)
    return int(getattr(config, "data_parallel_size", 1) or 1)


def _to_be_agreed(who: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a draft's dispatcher will be asked again once the ranks have agreed."""
    return _ranks(who) > 1 and "valid_modes" in kwargs and kwargs["valid_modes"] is None
