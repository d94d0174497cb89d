"""`PatchSet`: wrappers around other people's functions that chain, are gated, and come off again.

Whatever is in place is wrapped, so patches of other tools keep working; on `remove` a wrapper is taken off only where
it is still the outermost one, and is switched off for good where another tool wrapped it in turn; what was removed
wraps nothing any more. A failing wrapper switches itself off and hands every later call straight on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from replaywatch.probe.sight import Sight

Function = Callable[..., Any]
# Gets the function to wrap and the switch; wraps calls only while the switch holds something.
Wrapping = Callable[[Function, "Switch"], Function]


class Switch(list[bool]):
    """Truthy while a hook is on; a list, because the truth of a list is the cheapest thing to ask on a hot path."""

    def __init__(self) -> None:
        super().__init__((True,))

    off = list.clear
    asked = False


class ListeningSwitch(Switch):
    """A switch that notes the next time a wrapper asks it, which is the next call of that wrapper."""

    def __bool__(self) -> bool:
        self.__class__ = Switch  # type: ignore[assignment]
        self.asked = True
        return len(self) > 0


class Patch:
    """One wrapper in its place. `over` is what another tool put over it, in which no trace of it can be seen."""

    __slots__ = ("name", "original", "over", "owner", "signal", "switch", "wrapper")

    def __init__(self, owner: Any, name: str, signal: str, original: Any, wrapper: Function, switch: Switch) -> None:
        self.owner, self.name, self.signal = owner, name, signal
        self.original, self.wrapper, self.switch = original, wrapper, switch
        self.over: Any = None

    def in_place(self) -> bool:
        """Whether the wrapper is still the outermost one."""
        return vars(self.owner).get(self.name) is self.wrapper

    def out_of_reach(self) -> bool:
        """Whether something else has been in its place since the last look at least, and has not called it."""
        found = vars(self.owner).get(self.name)
        if reaches(found, self.wrapper):
            self.over = None
            return False
        if self.over is not found:
            self.over = found
            self.switch.asked = False
            self.switch.__class__ = ListeningSwitch
            return False
        return not self.switch.asked


class PatchSet:
    """All wrappers of one session."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._patches: list[Patch] = []
        self._told: set[str] = set()
        self._absent: set[str] = set()
        self._removed = False
        self.renew_lock()

    def renew_lock(self) -> None:
        """In a forked child: a thread of the parent's may have held the lock."""
        self._lock = threading.RLock()  # a finalizer that the collector runs under it may import, and so wrap

    def wrap(self, owner: Any, name: str, signal: str, wrapping: Wrapping, arguments: int | None = None) -> bool:
        """Wrap `owner.name`. False, with a blind spot under `signal`, where it is absent or not as expected.

        After `remove` it does nothing: an import may have been under way, whose hooks nobody would take off.
        Shape: `owner` a class or module; `arguments` the least number of positional arguments it must accept.
        """
        found = vars(owner).get(name)
        where = f"{getattr(owner, '__module__', owner.__name__)}.{name}" if isinstance(owner, type) else (
            f"{owner.__name__}.{name}"
        )  # fmt: skip
        if found is None:
            return self._miss(signal, f"{where} does not exist in this version")
        if not callable(found) or isinstance(found, (staticmethod, classmethod)):
            return self._miss(signal, f"{where} is not a plain function in this version")
        if arguments is not None and not accepts(found, arguments):
            return self._miss(signal, f"{where} takes other arguments in this version")
        with self._lock:
            if self._removed:
                return False
            if any(patch.wrapper is found and patch.switch for patch in self._patches):
                return True  # here already, or imported by name from where it was wrapped
            switch = Switch()
            wrapper = wrapping(found, switch)
            _dress(wrapper, found)
            setattr(owner, name, wrapper)
            self._patches.append(Patch(owner, name, signal, found, wrapper, switch))
        return True

    def _miss(self, signal: str, reason: str) -> bool:
        self._absent.add(signal)
        self._sight.blind(signal, reason)
        return False

    def remove(self) -> None:
        """Switch all wrappers off, and take those away that nobody wrapped in turn; the last placed goes first."""
        with self._lock:
            self._removed = True
            for patch in reversed(self._patches):
                patch.switch.off()
                if patch.in_place():
                    setattr(patch.owner, patch.name, patch.original)
            self._patches.clear()

    def overwritten(self) -> list[str]:
        """Signals whose wrapper was replaced by something that has not called it since.

        Those told before that are seen again are no blind spots from here on. A signal of which a hook failed or could
        not be placed is blind for that reason, which stays.
        """
        with self._lock:
            blind = self._absent | {p.signal for p in self._patches if not len(p.switch)}
            lost = {p.signal for p in self._patches if len(p.switch) and p.out_of_reach()} - blind
            for signal in self._told - lost - blind:
                self._sight.clear(signal)
            self._told = lost
        return sorted(lost)


def accepts(function: Any, arguments: int) -> bool:
    """Whether a Python function takes so many positional arguments; functions that do not tell are trusted."""
    code = getattr(_innermost(function), "__code__", None)
    if code is None or code.co_flags & 0x04:  # *args
        return True
    required = code.co_argcount - len(getattr(_innermost(function), "__defaults__", None) or ())
    return bool(required <= arguments <= code.co_argcount)


def _innermost(function: Any) -> Any:
    for _ in range(16):
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is None:
            break
        function = wrapped
    return function


def reaches(function: Any, wanted: Any) -> bool:
    """Whether a function is another one, or wraps it over some layers."""
    for _ in range(16):
        if function is wanted:
            return True
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return False
    return True


def _dress(wrapper: Function, original: Function) -> None:
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, name, None)
        if value is not None:
            with suppress(AttributeError, TypeError):  # a name that is no text
                setattr(wrapper, name, value)
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    _hide_from_dynamo(wrapper)


def _hide_from_dynamo(wrapper: Function) -> None:
    """Keep torch.compile out of a wrapper: neither inlined into a caller nor compiled as a frame of its own."""
    frames = getattr(getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None), "eval_frame", None)
    skip, code = getattr(frames, "skip_code", None), getattr(wrapper, "__code__", None)
    if skip is not None and code is not None:
        with suppress(TypeError, ValueError):  # private to torch, and only a kindness
            skip(code)


def torch_since(major: int, minor: int) -> bool:
    """Whether the process's torch is that release or a later one; True where it does not say."""
    try:
        found = tuple(int(number) for number in str(getattr(loaded("torch"), "__version__", "")).split(".")[:2])
    except ValueError:
        return True
    return found >= (major, minor)


def loaded(name: str) -> Any:
    """A module that the process already imported, else None; never imports."""
    return sys.modules.get(name)
