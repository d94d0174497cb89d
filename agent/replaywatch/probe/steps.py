"""`record_step`: how engine adapters say what became of a step, and the counters behind it.

An adapter sits on an engine's dispatch path, so this is a few dictionary additions under the interpreter lock and
nothing else. Steps of different parts or phases become windows of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from replaywatch.probe.counts import is_integral
from replaywatch.probe.patching import PatchSet

MODES = ("full", "piecewise", "eager")
PHASES = ("decode", "prefill", "mixed", "train")
# The contract's FALLBACK_REASONS, which would bring dataclasses into the serving process; a test compares them.
REASONS = frozenset(
    (
        "above_ceiling", "no_matching_graph", "mode_none", "forced_eager", "attention_backend", "cascade_attention",
        "lora", "speculative_width", "ranks_disagree", "prefill_by_design", "multimodal_input", "dynamic_shape",
        "mutated_input", "cpu_tensor", "incompatible_op", "rerecord_limit", "capture_failed", "warm_up", "other",
        "mode_piecewise",
    )
)  # fmt: skip
MAX_SIZE = 1 << 31
MAX_NAME = 64
# Exact sizes, then powers of two; together at most the 64 keys that the contract allows.
MAX_EXACT_SIZES = 40
MAX_KEYS = 16


def checked_step(
    mode: str,
    batch: int | None = None,
    real_tokens: int | None = None,
    padded_tokens: int | None = None,
    reason: str | None = None,
    phase: str | None = None,
    component: str | None = None,
) -> tuple[Any, ...]:
    """A step of somebody's own loop in values that a window can hold; the arguments of `StepLedger.record`.

    Raises: ValueError or TypeError, saying what cannot be told.
    """
    if mode not in MODES:
        raise ValueError(f"mode cannot be {_shown(mode)}")
    if phase is not None and phase not in PHASES:
        raise ValueError(f"phase cannot be {_shown(phase)}")
    if reason is not None and reason not in REASONS:
        raise ValueError(f"reason cannot be {_shown(reason)}")
    if component is not None and not _is_name(component):
        raise ValueError(f"component cannot be {_shown(component)}; give at most {MAX_NAME} printable characters")
    return (
        mode,
        _size("batch", batch),
        _size("real_tokens", real_tokens),
        _size("padded_tokens", padded_tokens),
        reason,
        phase,
        component,
    )


def checked_context(value: Any) -> int | None:
    """Tokens of context of all sequences of a step. Raises: ValueError or TypeError, as `checked_step`."""
    return _size("context_tokens", value)


def _size(name: str, value: Any) -> int | None:
    if value is None:
        return None
    # Not whatever int() takes: that of a CUDA tensor waits for the device.
    if not is_integral(value):
        raise TypeError(f"{name} cannot be {_shown(value)}; give an integer")
    size = int(value)
    if not 0 <= size < MAX_SIZE:
        raise ValueError(f"{name} cannot be {size}")
    return size


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME and value.isprintable()


def _shown(value: object) -> str:
    return repr(value[:40]) if isinstance(value, str) else f"a {type(value).__name__}"


class Adapter(Protocol):
    """What an engine adapter offers to the session that loads it.

    `place` hooks the engine and calls `record_step` from then on; `config` gives fields of the contract's EngineConfig
    as far as they are known by now; `remove` takes the hooks off. None of them may raise.
    """

    name: str
    patches: PatchSet

    def place(self) -> None:
        """Hook the engine."""

    def remove(self) -> None:
        """Take the hooks off."""

    def config(self) -> dict[str, Any]:
        """Fields of EngineConfig in the wire form."""

    def workload(self) -> dict[str, Any]:
        """Fields of Workload that the engine knows best."""

    def memory(self) -> dict[str, int]:
        """Fields of GraphMemory that the engine told."""


class StepCounts:
    """Steps of one component and phase since the last window."""

    __slots__ = (
        "batches", "context_sequences", "context_tokens", "eager_batches", "modes", "padded_tokens", "real_tokens",
        "reasons",
    )  # fmt: skip

    def __init__(self) -> None:
        self.modes: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.batches: dict[int, int] = {}
        self.eager_batches: dict[int, int] = {}
        self.real_tokens = 0
        self.padded_tokens = 0
        self.context_tokens = 0
        self.context_sequences = 0

    def wire(self) -> dict[str, Any]:
        """The counts as fields of Dispatch; absent where nothing told them."""
        fields: dict[str, Any] = {
            "steps": self.modes,
            "fallbacks": self.reasons,
            "batch_sizes": {str(k): v for k, v in self.batches.items()},
            "eager_batch_sizes": {str(k): v for k, v in self.eager_batches.items()},
            "real_tokens": self.real_tokens,
            "padded_tokens": self.padded_tokens,
            "context_tokens": self.context_tokens,
            "context_sequences": self.context_sequences,
        }
        return {key: value for key, value in fields.items() if value}


class StepLedger:
    """All steps that adapters and Inductor's hooks reported since the last window."""

    def __init__(self, on_step: Callable[[str], None] | None = None) -> None:
        self._on_step = on_step
        self.reset()

    def reset(self) -> None:
        """Start from nothing."""
        self._lock = threading.Lock()
        self._counts: dict[tuple[str | None, str | None], StepCounts] = {}

    def record(
        self,
        mode: str,
        batch: int | None = None,
        real_tokens: int | None = None,
        padded_tokens: int | None = None,
        reason: str | None = None,
        phase: str | None = None,
        component: str | None = None,
    ) -> None:
        """Count one step. Shape: `mode` one of MODES, `reason` one of the contract's FALLBACK_REASONS.

        `batch` is the number of sequences; `padded_tokens` the tokens processed, padding included.
        """
        if mode not in MODES:
            return
        self.mark(mode)
        self.add(1, mode, batch, real_tokens, padded_tokens, reason, phase, component)

    def mark(self, mode: str) -> None:
        """Say that a step of this mode runs now, without counting it."""
        if self._on_step is not None:
            self._on_step(mode)

    def add(
        self,
        times: int,
        mode: str,
        batch: int | None = None,
        real_tokens: int | None = None,
        padded_tokens: int | None = None,
        reason: str | None = None,
        phase: str | None = None,
        component: str | None = None,
    ) -> None:
        """Count equal steps at once; tokens are those of one step. Shape: as `record`."""
        with self._lock:
            counts = self._counts.get((component, phase)) or self._new(component, phase)
            counts.modes[mode] = counts.modes.get(mode, 0) + times
            if reason is not None:
                counts.reasons[reason] = counts.reasons.get(reason, 0) + times
            if batch is not None:
                _count_size(counts.batches, batch, times)
                if mode != "full":
                    _count_size(counts.eager_batches, batch, times)
            if real_tokens is not None:
                counts.real_tokens += real_tokens * times
                counts.padded_tokens += (real_tokens if padded_tokens is None else padded_tokens) * times

    def add_contexts(self, tokens: int, sequences: int) -> None:
        """Take the context of decode steps of the main model: tokens over all their sequences."""
        with self._lock:
            counts = self._counts.get((None, None)) or self._new(None, None)
            counts.context_tokens += tokens
            counts.context_sequences += sequences

    def any(self) -> bool:
        """Whether a step was reported since the last window."""
        return bool(self._counts)

    def take(self) -> dict[tuple[str | None, str | None], dict[str, Any]]:
        """Fields of Dispatch by component and phase since the last call."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return {key: c.wire() for key, c in counts.items()}

    def _new(self, component: str | None, phase: str | None) -> StepCounts:
        key = (component, phase) if len(self._counts) < MAX_KEYS else (None, None)
        return self._counts.setdefault(key, StepCounts())


def _count_size(sizes: dict[int, int], size: int, times: int) -> None:
    if size not in sizes and len(sizes) >= MAX_EXACT_SIZES:
        size = min(1 << max(0, size - 1).bit_length(), 1 << 23)
    sizes[size] = sizes.get(size, 0) + times
