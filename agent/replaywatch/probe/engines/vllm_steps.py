"""Wrappers around vLLM's dispatch and step: which way each step went, and why.

The dispatcher's answers are noted while the runner works on a real batch and judged when it is done, on the helper
thread: where ranks must agree it is asked twice, the first time what this rank would do by itself, and only the last
answer is what runs. Warm-up, profiling, capture and dummy runs are never counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from replaywatch.probe.engines import vllm_reasons as reasons
from replaywatch.probe.engines.port import EngineAdapter
from replaywatch.probe.engines.vllm_config import mode_name
from replaywatch.probe.engines.vllm_known import Known
from replaywatch.probe.engines.vllm_reasons import Asked, Facts
from replaywatch.probe.patching import Function, Switch

# Who was asked, with what, what came back, and in the second runner what it was before the ranks agreed, if they did.
Answer = tuple[Known | None, tuple[Any, ...], Mapping[str, Any], Any, Any]

SILENT_STEPS = 50
# One step in so many tells how long its sequences are, and one in its own turn what its hooks take; a prime, since
# prefill and decode may take regular turns.
ONE_IN = 31
TELLS_CONTEXT, MEASURED = 0, 15
# What `dispatch_cg_and_sync_dp` is asked with, by name: the rest is not judged.
ASKED = ("num_tokens", "uniform_token_count", "num_active_loras", "need_eager")
UNASKED = "vllm steps without a dispatch"
NOT_ASKED = "steps run, and no dispatcher that is hooked is asked how; they are not counted"
_MODES = {"NONE": "eager", "PIECEWISE": "piecewise", "FULL": "full"}


class Here:
    """What a thread is doing: the answers of a step under way, or nothing that counts.

    Shape: `alone` what this rank would do by itself, of the second runner; `asked_ns` when the step under way was
    dispatched first; `spent_ns` what hooks took of it so far, where it `is_measured`.
    """

    __slots__ = ("alone", "answers", "asked_ns", "idle", "is_measured", "quiet", "spent_ns")

    def __init__(self) -> None:
        self.answers: list[Answer] | None = None
        self.asked_ns = 0
        self.alone: Any = None
        self.quiet = 0
        self.idle = False
        self.is_measured = False
        self.spent_ns = 0


class Step:
    """A step that ran: all that judging it takes. Units: perf_counter_ns.

    Shape: `runner` that made it; `most` and `least` tokens of a request, where they differ; `context` tokens and
    sequences of those that tell theirs.
    """

    __slots__ = ("answers", "asked_ns", "at_ns", "context", "least", "most", "requests", "runner", "tokens")

    def __init__(
        self, runner: Known, answers: list[Answer], tokens: int, requests: int, most: int, least: int,
        asked_ns: int, at_ns: int, context: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        self.runner, self.answers, self.tokens, self.requests = runner, answers, tokens, requests
        self.most, self.least, self.asked_ns, self.at_ns, self.context = most, least, asked_ns, at_ns, context


class StepHooks:
    """Makes the wrappers. `facts_of` gives what is known of the engine that a runner belongs to, `meet` hears of
    a runner that makes its first step under these hooks.
    """

    def __init__(self, adapter: EngineAdapter, facts_of: Callable[[Any], Facts], meet: Callable[[Any], None]) -> None:
        self._adapter, self._facts_of, self._meet = adapter, facts_of, meet
        self._threads = threading.local()
        self._now_ns, self._later = adapter.port.clock.now_ns, adapter.port.later
        self._words: dict[Any, str] = {}
        self._known: dict[int, Known] = {}  # by id; an entry leaves before the memory can be used again
        # Without the main model's steps its answers would pass for those of a draft model.
        self._steps_heard = False
        self._turn = 0
        self._draft_turn = 0
        self._unanswered = 0  # steps since the last answer
        self._listens, self._counts, self._counts_drafts = Switch(), Switch(), Switch()

    def execute_model(self, original: Function, on: Switch) -> Function:
        """Around `GPUModelRunner.execute_model` of both runners: one call is one step.

        The hot path: what is read here is read between two forwards, with cold caches, where each function that is
        called costs as much as ten lines; so all of it stands in one.
        """
        hooks, threads, later, finish, everyone = self, self._threads, self._later, self._finish, self._known

        def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                here = threads.here
            except AttributeError:
                here = hooks._arrive()
            if not on or here.quiet or kwargs.get("dummy_run") or (len(args) > 2 and args[2] is True):
                return original(self, *args, **kwargs)
            turn = hooks._turn
            hooks._turn = turn - 1 if turn else ONE_IN - 1
            begin_ns = hooks._now_ns() if turn == MEASURED else 0
            hooks._steps_heard = True
            outer = here.answers
            answers: list[Answer] = []
            here.answers = answers
            if begin_ns:
                here.spent_ns, here.is_measured = hooks._now_ns() - begin_ns, True
            try:
                result = original(self, *args, **kwargs)
            finally:
                here.answers = outer
            if answers:
                at_ns = hooks._now_ns()
                try:
                    output, context, most, least = args[0] if args else kwargs["scheduler_output"], None, 1, 1
                    scheduled, tokens = output.num_scheduled_tokens, output.total_num_scheduled_tokens
                    requests = len(scheduled)
                    if tokens != requests:
                        most, least = max(scheduled.values()), min(scheduled.values())
                    if turn == TELLS_CONTEXT:
                        context = hooks._adapter.context_of(_context_of, output)
                    known = everyone.get(id(self)) or hooks._meets(self)
                    step = known, answers, tokens, requests, most, least, here.asked_ns, at_ns, context
                    if answers[0][0] is None:  # to 0.10.0 the runner is asked itself; what it was given is not kept
                        finish(on, step)
                    else:
                        later(finish, on, step)
                    if begin_ns:
                        here.is_measured = False
                        hooks._adapter.port.took(here.spent_ns + hooks._now_ns() - at_ns)
                except Exception as error:  # the probe's border
                    hooks._failed(on, error)
            elif hooks._unanswered < SILENT_STEPS and hooks._listens:
                output = args[0] if args else kwargs.get("scheduler_output")
                hooks._adapter.guarded(UNASKED, hooks._listens, hooks._unheard, output)
            return result

        return execute_model

    def _arrive(self) -> Here:
        """Of a thread that has not been here before."""
        here = self._threads.here = Here()
        return here

    def _of_thread(self) -> Here:
        here: Here | None = getattr(self._threads, "here", None)
        return here or self._arrive()

    def _unheard(self, output: Any) -> None:
        """A step in which nobody was heard to ask how it should run: now and then one is empty, one by one none is."""
        if not getattr(output, "total_num_scheduled_tokens", 0):
            return
        self._unanswered += 1
        if self._unanswered == SILENT_STEPS:
            self._adapter.port.sight.blind(UNASKED, NOT_ASKED)

    def dispatch(self, original: Function, on: Switch) -> Function:
        """Around `CudagraphDispatcher.dispatch` of the first runner and of draft models. The hot path, as above."""
        hooks, threads, note, everyone = self, self._threads, self._note, self._known
        later, draft = self._later, self._draft_later

        def dispatch(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if on:
                at_ns = hooks._now_ns()
                try:
                    here = threads.here
                except AttributeError:
                    here = hooks._arrive()
                answers, known = here.answers, everyone.get(id(self))
                if known is None:
                    note(on, self, args, kwargs, result, None, at_ns)
                elif answers is not None:
                    if not answers:
                        here.asked_ns = at_ns
                    answers.append((known, args, kwargs, result, None))
                    if here.is_measured:
                        here.spent_ns += hooks._now_ns() - at_ns
                elif hooks._steps_heard and not here.quiet:  # a draft model asks outside of the target's step
                    later(draft, (known, args, kwargs, result, None), at_ns)
                    turn = hooks._draft_turn
                    hooks._draft_turn = turn - 1 if turn else ONE_IN - 1
                    if turn == MEASURED:
                        hooks._adapter.port.took(hooks._now_ns() - at_ns)
            return result

        return dispatch

    def dispatch_function(self, original: Function, on: Switch) -> Function:
        """Around `dispatch_cg_and_sync_dp(manager, ...)`, whose answer the ranks have agreed on."""
        hooks, of_thread, note = self, self._of_thread, self._note

        def dispatch_cg_and_sync_dp(*args: Any, **kwargs: Any) -> Any:
            here = of_thread()
            here.alone = None
            result = original(*args, **kwargs)
            if on:
                manager = args[0] if args else kwargs.get("cudagraph_manager")
                kept = {name: kwargs[name] for name in ASKED if name in kwargs}  # objects of the engine's do not wait
                note(on, manager, args[1:4], kept, result[0], here.alone, hooks._now_ns())
            return result

        return dispatch_cg_and_sync_dp

    def agreement(self, original: Function, on: Switch) -> Function:
        """Around `sync_cudagraph_and_dp_padding(manager, desired, ...)`: what this rank would do by itself."""
        of_thread = self._of_thread

        def sync_cudagraph_and_dp_padding(*args: Any, **kwargs: Any) -> Any:
            if on:
                of_thread().alone = args[1] if len(args) > 1 else kwargs.get("desired_batch_desc")
            return original(*args, **kwargs)

        return sync_cudagraph_and_dp_padding

    def forward_context(self, original: Function, on: Switch) -> Function:
        """Around `set_forward_context` as the runner of 0.9 and 0.10.0 calls it, which have no dispatcher."""
        of_thread, now_ns = self._of_thread, self._now_ns

        def set_forward_context(*args: Any, **kwargs: Any) -> Any:
            here = of_thread()
            if on and here.answers is not None:
                if not here.answers:
                    here.asked_ns = now_ns()
                here.answers.append((None, (), kwargs, None, None))
            return original(*args, **kwargs)

        return set_forward_context

    def quietly(self, original: Function, on: Switch) -> Function:
        """Around warm-up, profiling and dummy runs: nothing inside counts."""
        of_thread = self._of_thread

        def run(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            here = of_thread()
            here.quiet += 1
            try:
                return original(*args, **kwargs)
            finally:
                here.quiet -= 1

        return run

    def aside(self, original: Function, on: Switch) -> Function:
        """Around a part of a step that asks the dispatcher for a size and not for the way the step will go."""
        of_thread = self._of_thread

        def run(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            here = of_thread()
            outer, here.answers, asked_ns = here.answers, [], here.asked_ns
            try:
                return original(*args, **kwargs)
            finally:
                here.answers, here.asked_ns = outer, asked_ns

        return run

    def idle_batch(self, original: Function, on: Switch) -> Function:
        """Around `Worker.execute_dummy_batch`: an idle rank keeps the others company; eager there slows all down."""
        of_thread, adapter, idle = self._of_thread, self._adapter, self._idle

        def execute_dummy_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
            here = of_thread()
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
        of_thread, quietly = self._of_thread, self.quietly(original, on)

        def _dummy_run(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if not on or of_thread().idle else quietly(*args, **kwargs)

        return _dummy_run

    def _note(
        self, on: Switch, who: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, alone: Any,
        at_ns: int,
    ) -> None:  # fmt: skip
        """Keep an answer for the step under way; outside of one a draft model asked, unless nothing counts."""
        here = self._of_thread()
        answers = here.answers
        if answers is None and (here.quiet or not self._steps_heard):
            return
        known = None
        if who is not None:  # the second runner may run without a manager
            known = self._known.get(id(who)) or self._adapter.guarded("vllm dispatch", on, self._knows, who)
            if known is None:
                return
        if answers is None:
            self._later(self._draft_later, (known, args, kwargs, result, alone), at_ns)
            return
        if not answers:
            here.asked_ns = at_ns
        answers.append((known, args, kwargs, result, alone))

    def _knows(self, thing: Any) -> Known:
        """Of a runner, dispatcher or manager that is met for the first time, by two threads at once it may be."""
        key = id(thing)
        known = Known(thing, self._facts_of(thing), lambda _: self._known.pop(key, None))
        return self._known.setdefault(key, known)

    def _meets(self, runner: Any) -> Known:
        """Of a runner that makes its first step here: the one time that all is asked while it waits."""
        self._adapter.guarded("vllm resolved mode", Switch(), self._meet, runner)
        known = self._knows(runner)
        self._mark_decider(runner)
        return known

    def _failed(self, on: Switch, error: Exception) -> None:
        """Count no step any more, nor drafts, which would pass for them."""
        on.off()
        self._counts.off()
        self._counts_drafts.off()  # a step under way may hear of itself yet
        self._steps_heard = False
        self._adapter.port.sight.fault("vllm steps", error)

    def _finish(self, on: Switch, step: tuple[Any, ...]) -> None:
        """Count a step, unless one before could not be counted; on the helper thread. Shape: `step` as of `Step`."""
        if self._counts:
            try:
                if self._unanswered:
                    self._heard_again()
                self._count(Step(*step))
            except Exception as error:  # the probe's border
                self._failed(on, error)

    def _count(self, step: Step) -> None:
        known, answers = step.runner, step.answers
        self._mark_decider(known.thing())
        who, _, _, result, _ = answers[-1]
        is_plain = len(answers) == 1 and result is not None and step.tokens == step.requests and _is_own(who)
        if is_plain and self._word(result) == "full":
            self._count_as(step, "full", _padded(result, step.tokens), None, "decode")
            return
        for answer in answers:
            if not _is_own(answer[0]):
                self._draft(answer, step.at_ns)
        own = [a for a in answers if _is_own(a[0])]
        if own:
            self._judge(step, own)

    def _mark_decider(self, runner: Any) -> None:
        """Who decides for a runner's own model: the dispatcher of the first kind, the graph manager of the second.

        Once marked, always: a runner that is shut down drops its manager before its last steps are judged.
        """
        decider = getattr(runner, "cudagraph_manager", None) or getattr(runner, "cudagraph_dispatcher", None)
        if decider is not None:
            (self._known.get(id(decider)) or self._knows(decider)).decides = True

    def _count_as(self, step: Step, mode: str, padded: int, why: str | None, phase: str) -> None:
        port = self._adapter.port
        port.step(mode, step.requests, step.tokens, padded, why, phase, step.runner.component,
                  asked_ns=step.asked_ns, at_ns=step.at_ns)  # fmt: skip
        if phase == "decode" and step.context is not None:
            port.context(*step.context)

    def _heard_again(self) -> None:
        if self._unanswered >= SILENT_STEPS:
            self._adapter.port.sight.clear(UNASKED)
        self._unanswered = 0

    def _judge(self, step: Step, own: list[Answer]) -> None:
        """Count a step that may not be a full replay of a decode batch, with the reason."""
        facts = (own[-1][0] or step.runner).facts(self._facts_of)
        mode, asked, padded = self._outcome(step, own)
        even = step.tokens == step.requests or asked.uniform
        phase = "decode" if even else reasons.phase_of(step.most, step.least, facts.decode_tokens)
        facts.ranks = mode != "full" and self._overruled(own)
        why = reasons.reason(mode, asked, phase, facts)
        if why != "warm_up":
            self._count_as(step, mode, padded, why, phase)

    def _outcome(self, step: Step, own: list[Answer]) -> tuple[str, Asked, int]:
        """Mode and padded tokens of the last answer; the question of the first, which is this rank's own."""
        _, _, kwargs, result, _ = own[-1]
        if result is None:
            return reasons.without_dispatcher(step.runner.thing(), kwargs)
        return self._word(result), reasons.asked_of(*own[0][:4]), _padded(result, step.tokens)

    def _draft_later(self, answer: Answer, at_ns: int) -> None:
        """Count a step of a draft model, unless one before could not be counted; on the helper thread."""
        if self._counts_drafts:
            try:
                self._draft(answer, at_ns)
            except Exception as error:  # the probe's border
                self._counts_drafts.off()
                self._adapter.port.sight.fault("vllm draft steps", error)

    def _draft(self, answer: Answer, at_ns: int) -> None:
        """Count a step of a draft model, which asks a dispatcher of its own, twice where the ranks must agree."""
        who, _, kwargs, result, _ = answer
        if who is None:
            return
        wish, who.wish = who.wish, None
        if kwargs.get("need_eager"):
            return
        if _to_be_agreed(who, kwargs):
            who.wish = answer
            return
        own = [answer] if wish is None else [wish, answer]
        facts = who.facts(self._facts_of)
        asked = reasons.asked_of(*own[0][:4])
        mode = self._word(result)
        facts.ranks = self._overruled(own)
        phase = "mixed" if facts.max_size is not None and asked.num_tokens > facts.max_size else "decode"
        why = reasons.reason(mode, asked, phase, facts)
        if why != "warm_up":
            padded = _padded(result, asked.num_tokens)
            self._adapter.port.step(mode, None, asked.num_tokens, padded, why, None, "draft", at_ns=at_ns)

    def _idle(self, answer: Answer) -> None:
        who, _, _, result, _ = answer
        if result is None or who is None:  # to 0.10.0 nobody is asked, and nothing is known of the batch
            return
        facts = who.facts(self._facts_of)
        if self._word(result) == "eager" and facts.ready and facts.mode != "NONE":
            self._adapter.port.sight.observe(
                "idle_rank_eager", "an idle rank ran its dummy batch eager, although its graphs are on", "vllm"
            )

    def _overruled(self, own: list[Answer]) -> bool:
        """Whether the ranks agreed on less than this rank would have done by itself."""
        who, _, _, result, alone = own[-1]
        if alone is None and len(own) > 1 and who is not None and who.ranks > 1:
            alone = own[0][3]  # the first runner asks anew once the ranks have agreed
        return alone is not None and self._word(alone) != self._word(result)

    def _word(self, result: Any) -> str:
        """Mode of an answer: a pair of mode and descriptor, or a descriptor with its mode."""
        mode = result[0] if isinstance(result, tuple) else result.cg_mode
        word = self._words.get(mode)
        if word is None:
            word = self._words[mode] = _MODES.get(mode_name(mode) or "", "eager")
        return word


def _is_own(who: Known | None) -> bool:
    """Whether an answer is of the runner's own model, and not of a draft's."""
    return who is None or who.decides


def _context_of(output: Any) -> tuple[int, int] | None:
    """Computed tokens of the running requests of a batch: lists since 0.9.2, an object for each request before."""
    cached = getattr(output, "scheduled_cached_reqs", None)
    if isinstance(cached, list):
        lengths = [request.num_computed_tokens for request in cached]
    else:
        lengths = getattr(cached, "num_computed_tokens", None) or []
    return (sum(lengths), len(lengths)) if lengths and all(type(n) is int for n in lengths) else None


def _padded(result: Any, tokens: int) -> int:
    descriptor = result[1] if isinstance(result, tuple) else result
    return max(tokens, int(descriptor.num_tokens)) if descriptor is not None else tokens


def _to_be_agreed(who: Known, kwargs: Mapping[str, Any]) -> bool:
    """Whether a draft's dispatcher will be asked again once the ranks have agreed."""
    return who.ranks > 1 and "valid_modes" in kwargs and kwargs["valid_modes"] is None
