"""Planning on the host: every planner that engines call is timed, once however deep it is nested."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import pytest

from replaywatch.probe.engines.flashinfer import SIGNAL, FlashInferAdapter

DECODE = """
class BatchDecodeWithPagedKVCacheWrapper:
    def plan(self, clock):
        clock(5)

    begin_forward = plan


def fast_decode_plan(wrapper, clock):
    clock(3)
"""
CASCADE = """
class MultiLevelCascadeAttentionWrapper:
    def plan(self, wrappers, clock):
        for wrapper in wrappers:
            wrapper.plan(clock)
        clock(1)
"""
MLA = """
class BatchMLAPagedAttentionWrapper:
    def plan(self, clock):
        clock(4)
"""
VLLM = """
from flashinfer.decode import fast_decode_plan


def fast_plan_decode(wrapper, clock, first):
    if first:
        wrapper.plan(clock)
        return
    clock(2)
"""
SGLANG = """
from functools import partial

from flashinfer.decode import fast_decode_plan


def fast_prefill_plan(wrapper, clock):
    clock(7)


class FlashInferIndicesUpdaterDecode:
    def call_begin_forward(self, wrapper, clock):
        fast = getattr(wrapper.begin_forward, "func", None) in (fast_decode_plan, fast_prefill_plan)
        wrapper.begin_forward(clock)
        return fast
"""
SOURCES = {
    "flashinfer": "", "flashinfer.decode": DECODE, "flashinfer.cascade": CASCADE, "flashinfer.mla": MLA,
    "vllm.v1.attention.backends.flashinfer": VLLM, "sglang.srt.layers.attention.flashinfer_backend": SGLANG,
}  # fmt: skip


@pytest.fixture
def module(monkeypatch):
    """Makes a module of given source, as if it had been imported."""

    def make(name, source=None):
        made = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, made)
        exec(SOURCES[name] if source is None else source, made.__dict__)
        return made

    for name in list(sys.modules):
        if name.split(".")[0] in ("flashinfer", "vllm", "sglang"):
            monkeypatch.delitem(sys.modules, name)
    return make


@pytest.fixture
def plans(parts, monkeypatch):
    """Moves the clock, and tells the nanoseconds of each plan, of an engine that has counted a step."""
    now = [0]
    parts.port.step("full", 1)
    monkeypatch.setattr("replaywatch.probe.engines.flashinfer.perf_counter_ns", lambda: now[0])
    parts.spend = lambda ns: now.__setitem__(0, now[0] + ns)
    kept = []
    parts.clock.plans = SimpleNamespace(add=kept.append)
    return kept


@pytest.mark.parametrize("name", ["plan", "begin_forward"])
def test_a_wrapper_plans_under_both_of_its_names(parts, module, plans, name):
    wrapper = module("flashinfer.decode").BatchDecodeWithPagedKVCacheWrapper()
    parts.attach(FlashInferAdapter)
    getattr(wrapper, name)(parts.spend)
    assert plans == [5]


def test_mla_and_the_fast_planner_are_timed(parts, module, plans):
    decode, mla = module("flashinfer.decode"), module("flashinfer.mla")
    parts.attach(FlashInferAdapter)
    mla.BatchMLAPagedAttentionWrapper().plan(parts.spend)
    decode.fast_decode_plan(None, parts.spend)
    assert plans == [4, 3]


def test_a_planner_inside_a_planner_is_part_of_it(parts, module, plans):
    wrapper = module("flashinfer.decode").BatchDecodeWithPagedKVCacheWrapper()
    cascade = module("flashinfer.cascade").MultiLevelCascadeAttentionWrapper()
    parts.attach(FlashInferAdapter)
    cascade.plan([wrapper, wrapper], parts.spend)
    wrapper.plan(parts.spend)
    assert plans == [11, 5]


def test_a_planner_that_fails_counts_and_ends(parts, module, plans):
    wrapper = module("flashinfer.decode").BatchDecodeWithPagedKVCacheWrapper()
    parts.attach(FlashInferAdapter)
    with pytest.raises(TypeError):
        wrapper.plan(None)
    wrapper.plan(parts.spend)
    assert plans == [0, 5]


def test_vllms_own_planner_is_timed_on_the_first_call_and_later(parts, module, plans):
    wrapper = module("flashinfer.decode").BatchDecodeWithPagedKVCacheWrapper()
    vllm = module("vllm.v1.attention.backends.flashinfer")
    parts.attach(FlashInferAdapter)
    vllm.fast_plan_decode(wrapper, parts.spend, first=True)
    vllm.fast_plan_decode(wrapper, parts.spend, first=False)
    assert plans == [5, 2]


@pytest.mark.parametrize("planner", ["fast_decode_plan", "fast_prefill_plan"])
@pytest.mark.parametrize("attached", ["before", "late"])
def test_sglang_still_knows_its_planners_with_hooks_and_after(parts, module, plans, attached, planner):
    """It compares what a wrapper has with what the module has; hooks must not come between."""
    decode = module("flashinfer.decode")
    adapter = parts.attach(FlashInferAdapter) if attached == "before" else None
    sglang = module("sglang.srt.layers.attention.flashinfer_backend")
    parts.imports.fire("sglang.srt.layers.attention.flashinfer_backend", sglang)
    wrapper = decode.BatchDecodeWithPagedKVCacheWrapper()
    wrapper.begin_forward = partial(getattr(sglang, planner), wrapper)
    adapter = adapter or parts.attach(FlashInferAdapter)
    updater = sglang.FlashInferIndicesUpdaterDecode()
    assert updater.call_begin_forward(wrapper, parts.spend) is True
    adapter.remove()
    assert updater.call_begin_forward(wrapper, parts.spend) is True
    assert plans == [3 if planner == "fast_decode_plan" else 7]


@pytest.mark.parametrize("begin", ["step", "replay"])
def test_plans_before_the_first_step_are_warm_up(parts, module, begin):
    wrapper = module("flashinfer.decode").BatchDecodeWithPagedKVCacheWrapper()
    parts.attach(FlashInferAdapter)
    wrapper.plan(lambda ns: None)
    assert parts.clock.take() == {}
    if begin == "step":
        parts.port.step("full", 1)
    else:
        parts.port.replays_here = lambda: 1
    wrapper.plan(lambda ns: None)
    assert parts.clock.take()[None, None]["host_plan"]["n"] == 1


def test_names_that_were_only_imported_are_left(parts, module, plans):
    decode = module("flashinfer.decode")
    vllm = module("vllm.v1.attention.backends.flashinfer")
    held = vllm.fast_decode_plan
    parts.attach(FlashInferAdapter)
    assert vllm.fast_decode_plan is held is not decode.fast_decode_plan


@pytest.mark.parametrize("name", ["flashinfer.decode", "sglang.srt.layers.attention.flashinfer_backend"])
def test_other_names_are_blind(parts, module, name):
    module(name, "class Wrapper:\n    def prepare(self): pass\n")
    parts.attach(FlashInferAdapter)
    assert SIGNAL in parts.blind()


def test_a_package_without_its_decoder_is_blind(parts, module):
    module("flashinfer")
    parts.attach(FlashInferAdapter)
    assert SIGNAL in parts.blind()


def test_vllm_without_flashinfers_planner_is_not_blind(parts, module):
    module("vllm.v1.attention.backends.flashinfer", "")
    parts.attach(FlashInferAdapter)
    assert parts.blind() == set()
