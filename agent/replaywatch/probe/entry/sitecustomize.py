"""Starts the probe in every Python process of `replaywatch run`, then hands on to the sitecustomize that was there.

This folder stands first in PYTHONPATH and holds nothing else. Nothing of Replaywatch's environment is put on the
process's path: the package is found by its place, so that another interpreter's packages are never shadowed.
"""

import sys


def _start_probe() -> None:
    import os

    if os.environ.get("REPLAYWATCH_PROBE") != "1":
        return
    try:
        import replaywatch.probe
    except ImportError:
        _make_importable(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        import replaywatch.probe
    replaywatch.probe.start()


def _make_importable(folder: str) -> None:
    """Give the process the namespace package `replaywatch` from its folder, without a new entry in sys.path."""
    import types

    package = sys.modules.get("replaywatch")
    if package is None:
        package = sys.modules["replaywatch"] = types.ModuleType("replaywatch")
        package.__path__ = []
    package.__path__ = [*package.__path__, folder]


def _hand_on() -> None:
    """Run the sitecustomize that this one stands in front of, as if it alone were there."""
    import os
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _start_probe()
except Exception as error:  # the probe's border: a process must start without us
    print(f"replaywatch: the probe was not started ({error!r})", file=sys.stderr)
_hand_on()
