"""Stands between torch.profiler and the kernel tracer: Kineto gets CUPTI to itself from before it starts, for good.

`torch.autograd.profiler` calls three functions of its own module for every profile, whichever front end was used:
`_prepare_profiler` (optional), `_enable_profiler` and `_disable_profiler`. The wrappers only pause the tracer and
say that a profile is over; arguments and results pass untouched.
"""

from __future__ import annotations

from typing import Any

from replaywatch.probe.patching import Function, PatchSet, Switch
from replaywatch.probe.sight import Sight
from replaywatch.probe.tracing import Tracing

MODULE = "torch.autograd.profiler"
SIGNAL = "torch.profiler"


class ProfilerGuard:
    """One per session; counts a profile once, whether it was prepared first or enabled at once."""

    def __init__(self, tracing: Tracing, sight: Sight) -> None:
        self._tracing, self._sight = tracing, sight
        self.reset()

    def reset(self) -> None:
        """A forked child profiles nothing."""
        self.active = False

    def place(self, patches: PatchSet, module: Any) -> None:
        """Wrap the functions of `torch.autograd.profiler`."""
        placed = [
            patches.wrap(module, "_enable_profiler", SIGNAL, self._before),
            patches.wrap(module, "_disable_profiler", SIGNAL, self._after),
        ]
        if "_prepare_profiler" in vars(module):
            patches.wrap(module, "_prepare_profiler", SIGNAL, self._before)
        if not all(placed):
            self._sight.blind("kernels", "torch.profiler's start cannot be seen in this version, so it has way")
            self._tracing.profiler_begins()

    def _before(self, original: Function, on: Switch) -> Function:
        def begins(*args: Any, **kwargs: Any) -> Any:
            if on:
                self._begin(on)
            return original(*args, **kwargs)

        return begins

    def _after(self, original: Function, on: Switch) -> Function:
        def ended(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                if on:
                    self._end(on)

        return ended

    def _begin(self, on: Switch) -> None:
        if self.active:
            return
        self.active = True
        try:
            self._tracing.profiler_begins()
        except Exception as error:  # the probe's border
            on.off()
            self._sight.fault(SIGNAL, error)

    def _end(self, on: Switch) -> None:
        if not self.active:
            return
        self.active = False
        try:
            self._tracing.profiler_ended()
        except Exception as error:  # the probe's border
            on.off()
            self._sight.fault(SIGNAL, error)
