"""Modules that an adapter waits for: one that never comes is a blind spot, one that is half there is hooked later."""

import sys
from collections.abc import Mapping
from typing import ClassVar

import pytest

from replaywatch.probe.engines.port import EngineAdapter


class Adapter(EngineAdapter):
    brings: ClassVar[Mapping[str, tuple[str, str]]] = {"made_engine.work": ("made steps", "made_engine.steps")}

    def watched(self):
        return {"made_engine.steps": self.hook}

    def hook(self, module):
        if not hasattr(module, "Steps"):
            self.port.sight.blind("made steps", "no class Steps")


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Writes an engine of given modules."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**modules):
        folder = tmp_path / "made_engine"
        folder.mkdir()
        (folder / "__init__.py").touch()
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)

    yield write
    for name in [name for name in sys.modules if name.split(".")[0] == "made_engine"]:
        del sys.modules[name]


@pytest.fixture
def adapter(parts):
    """An adapter that the engine's own code attaches, from `sys.attach_adapter`."""
    sys.attach_adapter = lambda: parts.attach(Adapter)
    yield
    del sys.attach_adapter


def reasons(parts):
    return {b["signal"]: b["reason"] for b in parts.sight.blind_spots()}


@pytest.mark.parametrize("late", [False, True])
def test_renamed_module_is_blind_where_the_engine_works(parts, engine, late):
    engine(work="import made_engine.other", other="")
    if late:
        __import__("made_engine.work")
    parts.attach(Adapter)
    __import__("made_engine.work")
    assert "made_engine.steps" in reasons(parts)["made steps"]


def test_engine_that_only_lends_its_types_is_not_blind(parts, engine):
    engine(work="", steps="", types="")
    parts.attach(Adapter)
    __import__("made_engine.types")
    assert reasons(parts) == {}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("work", ["import made_engine.steps", "def run(): import made_engine.steps"])
def test_module_that_comes_with_it_or_later_is_seen(parts, engine, work, late):
    engine(work=work, steps="class Steps: pass")
    if late:
        __import__("made_engine.work")
    parts.attach(Adapter)
    __import__("made_engine.work")
    __import__("made_engine.steps")
    assert reasons(parts) == {}


def test_module_that_came_with_other_classes_stays_blind(parts, engine):
    engine(work="", steps="")
    parts.attach(Adapter)
    __import__("made_engine.work")
    __import__("made_engine.steps")
    assert reasons(parts) == {"made steps": "no class Steps"}


def test_module_that_was_being_executed_is_hooked_with_the_next_import(parts, engine, adapter):
    engine(steps="import sys\nsys.attach_adapter()\n", other="")
    __import__("made_engine.steps")
    __import__("made_engine.other")
    assert reasons(parts) == {"made steps": "no class Steps"}


def test_module_that_was_being_executed_is_hooked_before_the_next_window(parts, engine, adapter):
    engine(steps="import sys\nsys.attach_adapter()\n")
    __import__("made_engine.steps")
    parts.port.flush()
    assert reasons(parts) == {"made steps": "no class Steps"}


def test_module_that_failed_while_it_was_waited_for_is_forgotten(parts, engine, adapter):
    engine(steps="import sys\nsys.attach_adapter()\nraise ValueError('broken')\n")
    with pytest.raises(ValueError, match="broken"):
        __import__("made_engine.steps")
    parts.port.flush()
    assert reasons(parts) == {}
