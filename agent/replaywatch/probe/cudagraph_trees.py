"""Inductor's graph trees at run time: which compiled calls were replayed, recorded anew, warmed up or run without.

Each call of a compiled function (of a partition, where the graph was partitioned) is one step here: full when its
recording was replayed, else eager with the reason.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from replaywatch.probe.patching import Function, PatchSet, Switch
from replaywatch.probe.sight import Sight
from replaywatch.probe.steps import StepLedger

MODULE = "torch._inductor.cudagraph_trees"
SIGNAL = "inductor recordings"
# The names of torch's CheckInvariantStatus (2.7 and later) in its own words.
MISMATCH = {
    "CudagraphManagedIdxMismatch": "cudagraph managed tensor data pointer changed",
    "StaticInputIdxMismatch": "static input data pointer changed",
    "ExpectedDeadIndicesBeforeGraphMismatch": "expected dead indices before graph are live",
}


class TreeHooks:
    """Wrappers around CUDAGraphTreeManager and CUDAGraphNode."""

    def __init__(self, sight: Sight, steps: StepLedger, on_event: Callable[[], None]) -> None:
        self._sight, self._steps, self._on_event = sight, steps, on_event
        self.reset()

    def reset(self) -> None:
        """Start from nothing."""
        self._here = threading.local()
        self._recorded: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()

    def place(self, patches: PatchSet, module: Any) -> None:
        """Wrap the methods of `torch._inductor.cudagraph_trees`."""
        manager = getattr(module, "CUDAGraphTreeManager", None)
        node = getattr(module, "CUDAGraphNode", None)
        if manager is None or node is None:
            self._sight.blind(SIGNAL, f"{module.__name__} has other classes in this version")
            return
        patches.wrap(manager, "run", "inductor steps", self._run, arguments=3)
        patches.wrap(manager, "execute_node", "inductor steps", self._execute, arguments=3)
        patches.wrap(manager, "record_function", SIGNAL, self._record, arguments=3)
        patches.wrap(manager, "run_eager", "inductor steps", self._eager, arguments=3)
        patches.wrap(node, "check_invariants", "inductor re-recordings", self._check, arguments=2)
        if "is_cudagraph_capture_sizes" in vars(module):
            patches.wrap(module, "is_cudagraph_capture_sizes", "inductor capture sizes", self._sizes, arguments=1)
        else:
            self._sight.blind("inductor capture sizes", "this version does not say which sizes it leaves out")

    def _run(self, original: Function, on: Switch) -> Function:
        here, direct = self._here, self._direct

        def run(manager: Any, new_inputs: Any, function_id: Any) -> Any:
            if not on:
                return original(manager, new_inputs, function_id)
            before = getattr(here, "calls", 0)
            here.mismatch = None  # of an earlier call
            result = original(manager, new_inputs, function_id)
            if getattr(here, "calls", 0) == before:
                self._guarded(on, "inductor steps", direct, manager, function_id)
            return result

        return run

    def _execute(self, original: Function, on: Switch) -> Function:
        here, record = self._here, self._steps.record

        def execute_node(manager: Any, node: Any, new_inputs: Any) -> Any:
            if on:
                here.calls = getattr(here, "calls", 0) + 1
                here.mismatch = None  # another recording of the function fits
                record("full")
            return original(manager, node, new_inputs)

        return execute_node

    def _record(self, original: Function, on: Switch) -> Function:
        def record_function(manager: Any, new_inputs: Any, function_id: Any) -> Any:
            if on:
                self._guarded(on, SIGNAL, self._recording, manager, function_id)
            return original(manager, new_inputs, function_id)

        return record_function

    def _eager(self, original: Function, on: Switch) -> Function:
        def run_eager(manager: Any, new_inputs: Any, function_id: Any) -> Any:
            if on:
                self._guarded(on, "inductor steps", self._warm_up, manager, function_id)
            return original(manager, new_inputs, function_id)

        return run_eager

    def _check(self, original: Function, on: Switch) -> Function:
        here = self._here

        def check_invariants(node: Any, inputs: Any) -> Any:
            result = original(node, inputs)
            if on:
                status = result[0] if type(result) is tuple else result
                name = getattr(status, "name", "SUCCESS" if status else "invariant")
                if name != "SUCCESS":
                    here.mismatch = name
            return result

        return check_invariants

    def _sizes(self, original: Function, on: Switch) -> Function:
        def is_cudagraph_capture_sizes(int_key: Any) -> Any:
            listed = original(int_key)
            if on and not listed:
                self._on_event()
                self._steps.record("eager", reason="no_matching_graph")
            return listed

        return is_cudagraph_capture_sizes

    def _recording(self, manager: Any, function_id: Any) -> None:
        self._on_event()
        self._called()
        mismatch, self._here.mismatch = getattr(self._here, "mismatch", None), None
        functions = self._recorded.setdefault(manager, set())
        self._steps.record("eager", reason="warm_up" if function_id not in functions else "other")
        if function_id in functions and mismatch is not None:
            self._sight.observe("inductor_rerecord", MISMATCH.get(mismatch, mismatch))
        functions.add(function_id)

    def _warm_up(self, manager: Any, function_id: Any) -> None:
        self._on_event()
        self._called()
        warm = function_id in getattr(manager, "warmed_up_functions", ())
        self._steps.record("eager", reason="other" if warm else "warm_up")

    def _direct(self, manager: Any, function_id: Any) -> None:
        """The compiled function was called without its graph: it mutates inputs, or was recorded too often."""
        self._called()
        self._steps.record("eager", reason="mutated_input" if _mutates(manager, function_id) else "rerecord_limit")

    def _called(self) -> None:
        self._here.calls = getattr(self._here, "calls", 0) + 1

    def _guarded(self, on: Switch, hook: str, act: Function, *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:  # the probe's border
            on.off()
            self._sight.fault(hook, error)


def _mutates(manager: Any, function_id: Any) -> bool:
    """Whether the manager leaves a function out because it mutates inputs (attribute of 2.4 to 2.14)."""
    hints = getattr(manager, "non_cudagraph_managed_mutation_hint", None) or {}
    return any(functions.get(function_id) for functions in hints.values())
