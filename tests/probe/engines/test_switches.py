"""Every wrapper of an adapter asks its switch on every call: how the probe sees that another tool still calls it."""

import inspect

import pytest

from replaywatch.probe.engines.registry import ADAPTERS
from replaywatch.probe.engines.vllm import VllmAdapter
from replaywatch.probe.engines.vllm_steps import StepHooks
from replaywatch.probe.patching import ListeningSwitch


def _wrappings(kind):
    """Names of the methods that wrap a function and are given a switch."""
    return [
        name for name, method in inspect.getmembers(kind, inspect.isfunction)
        if list(inspect.signature(method).parameters) == ["self", "original", "on"]
    ]  # fmt: skip


CASES = [(kind, name) for kind in (*ADAPTERS, StepHooks) for name in _wrappings(kind)]


def test_there_are_wrappers_to_look_at():
    assert {kind for kind, _ in CASES} == {*ADAPTERS, StepHooks}
    assert len(CASES) >= 20


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind.__name__}.{name}" for kind, name in CASES])
@pytest.mark.parametrize("idle", [False, True])
def test_a_call_asks_the_switch_even_where_nothing_counts(parts, kind, name, idle):
    owner = VllmAdapter(parts.port).steps if kind is StepHooks else kind(parts.port)
    if idle and hasattr(getattr(owner, "_here", None), "idle"):
        owner._here.idle = True
    switch = ListeningSwitch()
    wrapper = getattr(owner, name)(lambda *args, **kwargs: ("answer", None), switch)
    assert wrapper(object(), object(), object()) == ("answer", None)
    assert switch.asked
