"""What torch.compile does with CUDA graphs: recordings, re-recordings, skips with their reason, and the silent losses.

All hook points are private to torch, so each is checked before it is wrapped and reported by name where it is not
there. Function names are the same from 2.4 to 2.14 unless a comment says otherwise. Nothing is written to the user's
logs, and no log level is touched: the reasons are read where they are made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from replaywatch.probe.counts import add_count
from replaywatch.probe.inductor_reasons import reason_of, tidy
from replaywatch.probe.patching import Function, PatchSet, Switch, loaded, torch_since
from replaywatch.probe.sight import Sight

PARTITIONS = "inductor partitions"
SKIP = "log_cudagraph_skip_and_bump_counter"
# Modules that import the skip function by name; wrapping it in one of them does not reach the others.
SKIP_MODULES = (
    "torch._inductor.cudagraph_utils",
    "torch._inductor.compile_fx",
    "torch._inductor.output_code",
    "torch._inductor.cudagraph_trees",
    "torch._dynamo.backends.cudagraphs",
)


UNTOLD = "other: counted by torch without a reason (such as a function that uses no GPU)"


class InductorHooks:
    """Wrappers around Inductor's skip reporting and its compile step."""

    def __init__(self, sight: Sight, on_event: Callable[[], None]) -> None:
        self._sight, self._on_event = sight, on_event
        self._counted_skips = 0
        self.reset()

    def reset(self) -> None:
        """Start from nothing."""
        self._lock = threading.Lock()
        self._depth = threading.local()
        self.skips = 0
        self.compile_modes: dict[str, int] = {}

    def after_fork(self) -> None:
        """In a forked child, to which torch's own counter came with what the parent told already."""
        self.reset()
        self._counted_skips = _counted_by_torch() or 0

    def place_skip(self, patches: PatchSet, module: Any) -> None:
        """Wrap the function that every counted skip goes through, in a module that may import it by name."""
        if SKIP in vars(module):
            patches.wrap(module, SKIP, "inductor skips", self._skip, arguments=1)

    def place_utils(self, patches: PatchSet, module: Any) -> None:
        """`torch._inductor.cudagraph_utils`: skips, and the warning of many sizes (absent in 2.4)."""
        patches.wrap(module, SKIP, "inductor skips", self._skip, arguments=1)
        patches.wrap(module, "maybe_warning_due_to_dynamic_shape", "inductor sizes", self._sizes, arguments=2)

    def place_output_code(self, patches: PatchSet, module: Any) -> None:
        """`torch._inductor.output_code`: skips, and partitions that are silently not captured (2.9 and later)."""
        self.place_skip(patches, module)
        if torch_since(2, 9):
            patches.wrap(module, "cudagraph_partition_post_compile", PARTITIONS, self._partition)

    def place_compile(self, patches: PatchSet, module: Any) -> None:
        """`torch._inductor.compile_fx`: skips, and whether functions are compiled with graphs at all."""
        self.place_skip(patches, module)
        patches.wrap(module, "compile_fx", "torch.compile modes", self._compile)

    def poll_counters(self) -> None:
        """Compare torch's own counter of skips with those seen.

        torch counts without a word where a `CUDAGraphPolicy` declines (2.13 and later) or a function uses no GPU.
        """
        if loaded("torch._dynamo.utils") is None:
            return
        now = _counted_by_torch()
        if now is None:
            self._sight.blind("inductor skips without a reason", "torch._dynamo.utils.counters does not exist")
            return
        with self._lock:
            seen, self.skips = self.skips, 0
            before, self._counted_skips = self._counted_skips, now
        # torch._dynamo.reset() and counters.clear() may take the counter back to 0.
        unseen = now - before - seen if now >= before else now - seen
        if unseen > 0:
            policy = getattr(_config_now(), "cudagraph_policy", None)
            detail = f"forced_eager: {type(policy).__name__} declined" if policy is not None else UNTOLD
            self._sight.observe("inductor_skip", detail, "torch._dynamo.utils.counters", unseen)

    def take_modes(self) -> dict[str, int]:
        """Compiled functions that take CUDA tensors, by torch.compile's mode, since the start."""
        with self._lock:
            return dict(self.compile_modes)

    def _skip(self, original: Function, on: Switch) -> Function:
        def log_cudagraph_skip_and_bump_counter(msg: Any, *args: Any, **kwargs: Any) -> Any:
            if on:
                try:
                    self._skipped(str(msg))
                except Exception as error:  # the probe's border
                    on.off()
                    self._sight.fault("inductor skips", error)
            return original(msg, *args, **kwargs)

        return log_cudagraph_skip_and_bump_counter

    def _skipped(self, message: str) -> None:
        self._on_event()
        with self._lock:
            self.skips += 1
        detail, where = tidy(message)
        self._sight.observe("inductor_skip", f"{reason_of(message)}: {detail}", where)

    def _sizes(self, original: Function, on: Switch) -> Function:
        def maybe_warning_due_to_dynamic_shape(fn_cache: Any, *args: Any, **kwargs: Any) -> Any:
            warned = original(fn_cache, *args, **kwargs)
            if on and warned:
                try:
                    self._sight.observe("dynamic_shapes", f"{len(fn_cache) + 1} sizes of one function are recorded")
                except Exception as error:  # the probe's border
                    on.off()
                    self._sight.fault("inductor sizes", error)
            return warned

        return maybe_warning_due_to_dynamic_shape

    def _partition(self, original: Function, on: Switch) -> Function:
        def cudagraph_partition_post_compile(*args: Any, **kwargs: Any) -> Any:
            skips = self.skips
            result = original(*args, **kwargs)
            if on and self.skips == skips:
                try:
                    self._partitioned(args, kwargs)
                except Exception as error:  # the probe's border
                    on.off()
                    self._sight.fault(PARTITIONS, error)
            return result

        return cudagraph_partition_post_compile

    def _partitioned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The early return: fail reasons, or no partition that could be captured; torch neither logs nor counts it."""
        graph: Any = kwargs.get("compiled_graph", args[1] if len(args) > 1 else None)
        info: Any = getattr(graph, "cudagraph_info", None)
        if not hasattr(info, "cudagraph_fail_reasons") or not hasattr(graph, "partition_maps"):
            self._sight.blind(PARTITIONS, "compiled functions have other fields in this version")
            return
        reasons = list(info.cudagraph_fail_reasons or ())
        if reasons:
            text = ", ".join(map(str, reasons))
        elif not graph.partition_maps:
            text = "no partition can be captured"
        else:
            return
        self._on_event()
        detail, where = tidy(text)
        reason = reason_of(text) if reasons else "incompatible_op"
        self._sight.observe("inductor_skip", f"{reason}: {detail} (torch does not log this)", where)

    def _compile(self, original: Function, on: Switch) -> Function:
        def compile_fx(*args: Any, **kwargs: Any) -> Any:
            outermost = on and not getattr(self._depth, "inside", False)
            if not outermost:
                return original(*args, **kwargs)
            try:
                self._compiled(args, kwargs)
            except Exception as error:  # the probe's border
                on.off()
                self._sight.fault("torch.compile modes", error)
            self._depth.inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._depth.inside = False

        return compile_fx

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._on_event()
        inputs = kwargs.get("example_inputs_", args[1] if len(args) > 1 else ())
        if not any(getattr(tensor, "is_cuda", False) for tensor in inputs or ()):
            return
        patches = kwargs.get("config_patches") or (args[3] if len(args) > 3 else None) or {}
        with self._lock:
            add_count(self.compile_modes, mode_of(patches, _config_now()), limit=8)


def mode_of(patches: dict[str, Any], config: Any) -> str:
    """torch.compile's mode from the configuration it stands for. Source: torch._inductor.list_mode_options."""

    def value(name: str) -> Any:
        if name in patches:
            return patches[name]
        found = config
        for part in name.split("."):
            found = getattr(found, part, None)
        return found

    graphs, tuned = bool(value("triton.cudagraphs")), bool(value("max_autotune"))
    if tuned:
        return "max-autotune" if graphs else "max-autotune-no-cudagraphs"
    return "reduce-overhead" if graphs else "default"


def _config_now() -> Any:
    return loaded("torch._inductor.config")


def _counted_by_torch() -> int | None:
    """Torch's own counter of skips; None where it has none."""
    counters = getattr(loaded("torch._dynamo.utils"), "counters", None)
    if counters is None:
        return None
    return int(counters["inductor"].get("cudagraph_skips", 0)) if "inductor" in counters else 0
