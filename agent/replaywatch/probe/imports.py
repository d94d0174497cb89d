"""`ImportWatch`: calls back when a module of a given name was imported, without importing anything itself.

A finder at the head of `sys.meta_path` lets the finders behind it do the work, and swaps the loader of watched modules
for the moment of execution only: the module keeps its own loader and spec, so reload, resources and source inspection
behave as ever. Other tools' finders (wrapt, ddtrace) are asked like any other. Namespace packages are left alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from replaywatch.probe.sight import Sight

Callback = Callable[[ModuleType], None]


class ImportWatch:
    """Watched names and what to do when they appear. Callbacks never raise into the import."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._callbacks: dict[str, list[Callback]] = {}
        self._loading: list[tuple[str, Callback]] = []
        self._busy = threading.local()
        self._stopped = False

    def start(self) -> None:
        """Begin to watch; modules that are there already are reported at once."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for name, callbacks in list(self._callbacks.items()):
            for callback in list(callbacks):
                self.catch(name, callback)

    def stop(self) -> None:
        """Watch no longer, for good; an import that is under way calls nobody back either."""
        self._stopped = True
        self._loading, self._callbacks = [], {}
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def on(self, name: str, callback: Callback) -> None:
        """Call back with the module after each time it was executed."""
        self._callbacks.setdefault(name, []).append(callback)

    def catch(self, name: str, callback: Callback) -> None:
        """Call back with a module that is there already; if it is still being executed, as soon as it is seen done."""
        module = sys.modules.get(name)
        if module is None:
            return
        if _still_loading(module):
            self._loading.append((name, callback))
        else:
            self._call(callback, name, module)

    def catch_up(self) -> None:
        """Look again for the modules that were being executed; with each later import, and before each window."""
        if self._loading:
            loading, self._loading = self._loading, []
            for name, callback in loading:
                self.catch(name, callback)

    def fire(self, name: str, module: ModuleType) -> None:
        """Run the callbacks of a module."""
        for callback in self._callbacks.get(name, ()):
            self._call(callback, name, module)

    def _call(self, callback: Callback, name: str, module: ModuleType) -> None:
        if self._stopped:
            return
        try:
            callback(module)
        except Exception as error:  # the probe's border: an import must not fail because of us
            self._sight.fault(f"import of {name}", error)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The finder protocol: None for names that are not watched, else the spec that the other finders give."""
        self.catch_up()
        if name not in self._callbacks or getattr(self._busy, "name", None) == name:
            return None
        self._busy.name = name
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self._busy.name = None
        loader = getattr(spec, "loader", None)
        if loader is not None and hasattr(loader, "exec_module"):
            spec.loader = _Announcer(loader, self)
        return spec

    def _ask_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None


class _Announcer:
    """Stands in for a loader until the module runs, then gives the loader back its place and announces the module."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader, self._watch = loader, watch

    def create_module(self, spec: Any) -> Any:
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._watch.fire(module.__name__, sys.modules.get(module.__name__, module))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _still_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
