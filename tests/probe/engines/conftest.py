"""A real probe's parts without a process around them, and stand-in engines as importable packages."""

import sys
from pathlib import Path

import pytest

from replaywatch.probe.engines.port import Port
from replaywatch.probe.engines.step_clock import StepClock
from replaywatch.probe.imports import ImportWatch
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import Recorders
from replaywatch.probe.steps import StepLedger

STAND_INS = Path(__file__).parent / "stand_ins"
ENGINES = ("vllm", "sglang", "tensorrt_llm", "flashinfer")


class Parts:
    """The parts of a session that adapters meet, and a clock that a test moves."""

    def __init__(self):
        self.now_ns = 1_000
        self.sight = Sight()
        self.imports = ImportWatch(self.sight)
        self.steps = StepLedger()
        self.ledger = GraphLedger(self.sight, Recorders(0, lambda: None), lambda: None)
        self.clock = StepClock(lambda: self.now_ns)
        self.port = Port(self.sight, self.imports, self.steps, self.ledger, clock=self.clock)

    def attach(self, kind, **options):
        adapter = kind(self.port, **options)
        adapter.place()
        self.imports.start()
        return adapter

    def taken(self):
        """Dispatch fields by component and phase, only what is there."""
        self.port.flush()
        return self.steps.take()

    def blind(self):
        return {b["signal"] for b in self.sight.blind_spots()}


@pytest.fixture
def parts():
    made = Parts()
    yield made
    made.imports.stop()


@pytest.fixture
def stand_in():
    """Makes a stand-in importable; all engine modules are forgotten afterwards."""
    added = []

    def use(name):
        forget()
        sys.path.insert(0, str(STAND_INS / name))
        added.append(str(STAND_INS / name))

    yield use
    for path in added:
        sys.path.remove(path)
    forget()


def forget():
    for name in list(sys.modules):
        if name.split(".", 1)[0] in ENGINES:
            del sys.modules[name]
