"""The engines' real sources, where somebody unpacked them: REPLAYWATCH_ENGINE_SOURCES names a folder with
`vllm-0.25.1/`, `sglang-0.5.23/` and so on, each an unpacked wheel (only its .py files are needed).

    pip download --no-deps -d wheels vllm==0.25.1; unzip -q wheels/vllm-0.25.1*.whl '*.py' -d sources/vllm-0.25.1
"""

import ast
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = os.environ.get("REPLAYWATCH_ENGINE_SOURCES", "")


def versions(engine):
    """Unpacked versions of an engine, as parameters; one that skips where there are none."""
    found = sorted(Path(FOLDER).glob(f"{engine}-[0-9]*")) if FOLDER else []
    if not found:
        why = f"no unpacked {engine}: set REPLAYWATCH_ENGINE_SOURCES (see tests/probe/engines/sources.py)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=why), id=f"{engine}-absent")]
    return [pytest.param(path, id=path.name) for path in found]


def number(path):
    """Version of an unpacked wheel as numbers."""
    return tuple(int(part) for part in path.name.rsplit("-", 1)[1].split(".") if part.isdigit())


def function(path, qualified):
    """Positional and keyword parameter names of a function or method in a source file; None where it is absent."""
    if not path.exists():
        return None
    body = ast.parse(path.read_text()).body
    for name in qualified.split("."):
        found = next((n for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == name), None)
        if found is None:
            return None
        body = found.body
    return [a.arg for a in (*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs)]


class Anything:
    """Stands for whatever a module imports and a test does not run."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Anything()

    def __getitem__(self, key):
        return Anything()

    def __or__(self, other):
        return Anything()

    __ror__ = __or__


class Hollow(ModuleType):
    """A module in which everything exists."""

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Sources(MetaPathFinder, Loader):
    """Imports chosen modules of an unpacked wheel, and hollow ones for all else that they want."""

    def __init__(self, root, real, hollow):
        self.root, self.real, self.hollow = root, set(real), tuple(hollow)

    def find_spec(self, name, path=None, target=None):
        top = name.split(".", 1)[0]
        if top not in self.hollow:
            return None
        return ModuleSpec(name, self, is_package=name not in self.real)

    def create_module(self, spec):
        return ModuleType(spec.name) if spec.name in self.real else Hollow(spec.name)

    def exec_module(self, module):
        if module.__name__ in self.real:
            path = self.root / (module.__name__.replace(".", "/") + ".py")
            exec(compile(path.read_text(), str(path), "exec"), module.__dict__)

    def __enter__(self):
        sys.meta_path.append(self)
        return self

    def __exit__(self, *exc):
        sys.meta_path.remove(self)
        for name in list(sys.modules):
            if isinstance(sys.modules[name], Hollow) or name in self.real:
                del sys.modules[name]


def one_class(path, name, names=None):
    """A single class of a source file, executed by itself with the names that it needs."""
    tree = ast.parse(path.read_text())
    found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    scope = dict(names or {})
    exec(compile(ast.Module([found], []), str(path), "exec"), scope)
    return scope[name]
