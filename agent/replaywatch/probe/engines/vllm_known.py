"""`Known`: what hooks remember of a runner, a dispatcher or a graph manager without holding on to it.

Steps are judged a moment after they ran (`Port.later`). An engine that is thrown away meanwhile must go with its
weights and its graphs at once, and its last steps must count all the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from replaywatch.probe.engines.vllm_config import reach
from replaywatch.probe.engines.vllm_reasons import Facts


class Known:
    """One of vLLM's objects: itself for as long as it lives, and what does not change of it.

    Shape: `component` the part of the model that a runner's steps are of; `decode_query_len` tokens of a decoding
    request; `ranks` how many must agree; `decides` whether it decides for a runner's own model; `wish` the first of two
    questions of a draft model.
    """

    __slots__ = ("_facts", "_ref", "component", "decides", "decode_query_len", "ranks", "wish")

    def __init__(self, thing: Any, facts: Facts, gone: Callable[[Any], object]) -> None:
        self._facts = facts
        self._ref: Callable[[], Any]
        try:
            self._ref = weakref.ref(thing, gone)
        except TypeError:  # a class with slots of its own: what was read now is all that will be known
            self._ref = _nobody
        self.component = "target" if getattr(thing, "speculative_config", None) is not None else None
        self.decode_query_len = getattr(thing, "decode_query_len", 1)
        self.ranks = int(reach(thing, "vllm_config.parallel_config.data_parallel_size") or 1)
        self.decides = False
        self.wish: Any = None

    def thing(self) -> Any:
        """The object; None once it is gone."""
        return self._ref()

    def facts(self, read: Callable[[Any], Facts]) -> Facts:
        """What is known of its engine: as `read` has it of the living object, or as it was last."""
        thing = self._ref()
        if thing is not None:
            self._facts = read(thing)
        return self._facts


def _nobody() -> None:
    """In place of an object that cannot be referred to without holding on to it."""
