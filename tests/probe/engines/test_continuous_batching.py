"""Steps of continuous batching in transformers, on stand-ins of 4.57, 5.0, 5.3, 5.8 and 5.24."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from replaywatch.probe.engines.transformers import BATCHING, TransformersAdapter

DECODE = (None, None)
SIGNAL = "transformers continuous batching"
PACKAGE = "transformers.generation.continuous_batching"


class Inputs:
    """What a batch of requests becomes; `tokens` is the name that a version gives the number of its tokens."""

    def __init__(self, name):
        self.name, self.requests_in_batch = name, []

    def fill(self, tokens, table=False):
        self.requests_in_batch, self.use_block_table = [object()] * len(tokens), table
        setattr(self, self.name, sum(tokens))


class Processor:
    """The batch processor, whose step is the manager's in 4.57."""

    def __init__(self, replay, inputs, **switches):
        self.replay, self.inputs_and_outputs = replay, inputs
        self.__dict__.update(switches)

    def _generation_step(self, model):
        self.replay()


class Manager:
    """The manager, which calls the step of the processor, or makes it."""

    def __init__(self, processor):
        self.batch_processor = processor

    def _generation_step(self):
        self.batch_processor._generation_step(None)


class FirstManager:
    use_cuda_graph = False

    def _generation_step(self, batch_processor):
        """The step itself."""


class Stepper:
    """One version: its classes in their module, and a batch run through them."""

    def __init__(self, parts, monkeypatch, version):
        self.parts, self.version, self.replays = parts, version, 0
        module = ModuleType(BATCHING)
        processor = type("ContinuousBatchProcessor", (Processor,), {})
        if version == "4.57":
            manager = type("ContinuousBatchingManager", (), dict(vars(FirstManager)))
        else:
            processor._generation_step = Processor._generation_step
            manager = type("ContinuousBatchingManager", (Manager,), {"_generation_step": Manager._generation_step})
        module.ContinuousBatchProcessor, module.ContinuousBatchingManager = processor, manager
        monkeypatch.setitem(sys.modules, BATCHING, module)
        parts.port.replays_here = lambda: self.replays
        self.adapter = parts.attach(TransformersAdapter)
        self.module = module

    def make(self, graphs=False, compiled=False):
        version, both = self.version, (graphs, graphs)
        names = {"4.57": "total_query_length", "5.0": "actual_query_length", "5.3": "actual_query_length"}
        self.inputs = Inputs(names.get(version, "num_q_tokens"))
        switches = {
            "5.0": {"_graphs": {} if graphs else None, "_forward_process_and_sample_is_compiled": compiled},
            "5.3": {"use_cuda_graph": graphs, "_forward_process_and_sample_is_compiled": compiled},
        }.get(version)
        if switches is None:
            switches = dict(zip(("use_cuda_graph_varlen", "use_cuda_graph_decode"), both, strict=True))
            switches |= dict.fromkeys(("_compiled_varlen", "_compiled_decode"), object() if compiled else None)
        if version == "5.24":
            switches = {"model_runner": SimpleNamespace(**switches)}
        self.graph = graphs
        inputs = self.inputs if version not in ("4.57", "5.0") else None
        self.processor = self.module.ContinuousBatchProcessor(self.replay, inputs, **switches)
        if inputs is None:
            del self.processor.inputs_and_outputs
        self.manager = self.module.ContinuousBatchingManager(*(() if version == "4.57" else (self.processor,)))
        return self

    def replay(self):
        self.replays += self.graph

    def step(self, *tokens, table=False):
        self.inputs.fill(tokens, table)
        if not hasattr(self.processor, "inputs_and_outputs"):
            self.processor.__dict__.update(vars(self.inputs))
        self.manager._generation_step(*((self.processor,) if self.version == "4.57" else ()))


@pytest.fixture(params=["4.57", "5.0", "5.3", "5.8", "5.24"])
def stepper(parts, monkeypatch, request):
    made = Stepper(parts, monkeypatch, request.param)
    yield made
    made.adapter.remove()


def test_every_batch_is_one_step_and_one_token_each_is_decode(parts, stepper):
    stepper.make()
    stepper.step(5, 1)
    stepper.step(1, 1)
    stepper.step(1, 1)
    taken = parts.taken()
    assert taken[None, "mixed"]["fallbacks"] == {"prefill_by_design": 1}
    assert (taken[DECODE]["steps"], taken[DECODE]["fallbacks"]) == ({"eager": 2}, {"mode_none": 2})
    assert taken[DECODE]["batch_sizes"] == {"2": 2}
    assert stepper.adapter.config()["graphs_enabled"] is False


def test_replayed_batches_are_full_and_captured_ones_no_steps(parts, stepper):
    if stepper.version == "4.57":
        pytest.skip("has no graphs")
    stepper.make(graphs=True)
    stepper.graph = False  # the first batch of a size captures
    stepper.step(1, 1)
    stepper.graph = True
    stepper.step(1, 1)
    assert parts.taken()[DECODE]["steps"] == {"full": 1}
    assert stepper.adapter.config()["resolved_mode"] == "FULL"


def test_compiled_batches_are_left_to_inductors_hooks(parts, stepper):
    if stepper.version == "4.57":
        pytest.skip("does not compile")
    stepper.make(compiled=True)
    stepper.step(1, 1)
    stepper.step(1, 1, table=True)
    assert parts.taken() == {}


def test_other_names_are_blind(parts, monkeypatch):
    monkeypatch.setitem(sys.modules, BATCHING, ModuleType(BATCHING))
    parts.attach(TransformersAdapter)
    assert SIGNAL in parts.blind()


def test_package_without_the_module_is_blind(parts, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGE, ModuleType(PACKAGE))
    monkeypatch.delitem(sys.modules, BATCHING, raising=False)  # of another test, with the real library
    parts.attach(TransformersAdapter)
    assert SIGNAL in parts.blind()
