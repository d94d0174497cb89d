"""The binding of the native kernel tracer (`libreplaywatch_tracer.so`, beside this file).

Every call that waits gives the interpreter lock away; records are aggregated natively and only sums come here. All that
a caller gets is in the wire form of the contract, as plain dictionaries: the contract's dataclasses would cost the
serving process their import.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

LIBRARY: Final = "libreplaywatch_tracer.so"
ABI_VERSION: Final = 2
SIGNAL: Final = "kernels"
STEP_KINDS: Final[Mapping[str | None, int]] = {None: 0, "full": 1, "piecewise": 2, "eager": 3}
_OK: Final = 0
_TEXT_BYTES: Final = 1 << 18
_REASON_BYTES: Final = 512
_TEXT: Final = (ctypes.c_char_p, ctypes.c_size_t)


class TracerUnavailable(RuntimeError):
    """There is no kernel tracing in this process; the text says why, for a person."""


class KernelTracer:
    """Short windows of kernel records, without a CUPTI subscription. Thread-safe; one for the process."""

    def __init__(self, path: str) -> None:
        self._library = _load(path)
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        if self._library.rw_tracer_open(reason, len(reason)) != _OK:
            raise TracerUnavailable(_text(reason.value) or "the tracer could not start")
        slots = ctypes.c_size_t()
        address = self._library.rw_tracer_mark_slots(ctypes.byref(slots))
        self._slots = (ctypes.c_uint64 * slots.value).from_address(address)
        self._slot = count()
        self._live = ctypes.c_uint32.from_address(self._library.rw_tracer_live_flag())

    def run_window(self, duration_ms: float) -> dict[str, Any] | None:
        """Trace once, blocking the calling thread only; None when nothing came and there is nothing to say.

        Shape: ``traced`` and ``timing`` of the device with most kernels, and ``device`` its CUDA index; ``blind`` pairs
        of signal and reason; ``devices`` the same of all devices; ``window`` what the window says about itself.
        """
        window = self._ask(self._library.rw_tracer_run_window, max(1, round(duration_ms)))
        return as_result(window) if window else None

    def start(self, period_ms: float, duration_ms: float) -> bool:
        """Windows on their own, on the tracer's thread; `collect` takes what they saw. False when refused."""
        return bool(self._library.rw_tracer_start(max(1, round(period_ms)), max(1, round(duration_ms))) == _OK)

    def collect(self) -> dict[str, Any] | None:
        """The oldest window of `start` that was not collected yet, as `run_window`; None when there is none."""
        window = self._ask(self._library.rw_tracer_collect)
        return as_result(window) if window else None

    def pause(self) -> bool:
        """End a running window and allow none until `resume`; False when CUPTI was still in use after 3 s."""
        return bool(self._library.rw_tracer_pause() == _OK)

    def resume(self) -> None:
        """Allow windows again, once for each `pause`."""
        self._library.rw_tracer_resume()

    def stop(self) -> bool:
        """End the tracer's thread; False when it did not end within 3 s."""
        return bool(self._library.rw_tracer_stop() == _OK)

    @property
    def live(self) -> bool:
        """Whether a window records now; hooks mark steps only then."""
        return bool(self._live.value)

    def mark_step(self, unix_ns: int, mode: str | None = None) -> None:
        """A step begins. For the launch path: one store, no call and no lock."""
        self._slots[next(self._slot) % len(self._slots)] = (unix_ns & -4) | STEP_KINDS[mode]

    def calibrate(self, device: int = -1, trace: bool = True) -> dict[str, int]:
        """Launch costs of this host on a device, in nanoseconds.

        -1: in the context of the calling thread, else of the first device on which the process has one.

        Shape: launch_host_ns, launch_device_ns, graph_launch_host_ns, graph_node_ns, and with `trace` in_graph_gap_ns
        and null_kernel_ns. Loads a module and launches some 2,500 null kernels: call it at start, before there is load.
        Raises: TracerUnavailable, where the process has no context there or a call fails.
        """
        found = self._ask(self._library.rw_tracer_calibrate, device, int(trace)) or {}
        if "refused" in found or not found:
            raise TracerUnavailable(found.get("refused", "the calibration failed"))
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def neighbours(self) -> dict[str, Any]:
        """Other tools in this process. Shape: ``tools`` with tool, evidence, yields."""
        return self._ask(self._library.rw_tracer_neighbours) or {"tools": []}

    def obstacle(self) -> str | None:
        """Why windows must not run beside the tools of this process; None when nothing stands in the way."""
        for tool in self.neighbours()["tools"]:
            if tool["yields"]:
                return f"{tool['tool']} is in this process ({tool['evidence']}); windows leave CUPTI to it"
        return None

    def enable_graph_level(self) -> None:
        """Graph records instead of kernels, for the life of the process.

        Raises: TracerUnavailable once CUDA is initialised, because replaying an older graph then crashes (M1).
        """
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        if self._library.rw_tracer_enable_graph_level(reason, len(reason)) != _OK:
            raise TracerUnavailable(_text(reason.value) or "graph-level tracing could not be enabled")

    def status(self) -> dict[str, Any]:
        """Version and path of CUPTI, and what the tracer's thread did so far."""
        return self._ask(self._library.rw_tracer_status) or {}

    def histogram(self, values: list[int]) -> dict[str, Any]:
        """The native histogram of some values, in the wire form."""
        array = (ctypes.c_int64 * len(values))(*values)
        answer = self._ask(self._library.rw_tracer_histogram, array, len(values)) or {}
        found: dict[str, Any] = answer["histogram"]
        return found

    def _ask(self, function: Any, *arguments: Any) -> dict[str, Any] | None:
        return _ask(self._library, function, *arguments)


def open_tracer(path: str | None = None) -> KernelTracer:
    """The tracer of this process.

    Raises: TracerUnavailable where there is no library, no CUPTI, an unknown version, or another tool holds CUPTI.
    """
    library = Path(path) if path else find_library()
    if library is None or not library.exists():
        raise TracerUnavailable(f"this installation has no {LIBRARY}; it was built without a C++17 compiler")
    tracer = KernelTracer(os.fspath(library))
    obstacle = tracer.obstacle()
    if obstacle:
        raise TracerUnavailable(obstacle)
    return tracer


def version_notes(cupti: str | Path, library: str | Path | None = None) -> list[dict[str, str]]:
    """What is known about a libcupti with the driver of this host, for whoever looks before anything is traced.

    Shape: effect (refuse, refuse_graph_level, note), text and source of each; nothing where there is nothing to say.
    Loads the tracer, the libcupti and the driver, and asks the last two for their versions alone.
    Raises: TracerUnavailable where there is no tracer, or no libcupti in that file.
    """
    tracer = library or find_library()
    if tracer is None:
        raise TracerUnavailable(f"this installation has no {LIBRARY}; it was built without a C++17 compiler")
    native, version = _load(os.fspath(tracer)), ctypes.c_uint32()
    try:
        ctypes.CDLL(os.fspath(cupti)).cuptiGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as error:
        raise TracerUnavailable(f"{cupti} is no libcupti that can be loaded: {error}") from None
    with suppress(OSError):  # without a driver, what holds for any driver is said
        ctypes.CDLL("libcuda.so.1")
    notes: list[dict[str, str]] = (_ask(native, native.rw_tracer_version_notes, version.value) or {}).get("notes", [])
    return notes


def find_library() -> Path | None:
    """Where the native library lies; None when this installation has none.

    REPLAYWATCH_TRACER_LIBRARY names it; else it lies beside this file, or where an editable installation put it.
    """
    named = os.environ.get("REPLAYWATCH_TRACER_LIBRARY")
    places = [Path(named)] if named else []
    places += [Path(__file__).with_name(LIBRARY), *(Path(p, "replaywatch", "probe", LIBRARY) for p in sys.path if p)]
    return next((place for place in places if place.exists()), None)


def as_result(window: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the probe's window needs out of one traced stretch; None where it says nothing."""
    reasons = [*window["reasons"], *([window["refused"]] if "refused" in window else [])]
    devices = window["devices"]
    if not devices and not reasons:
        return None
    result: dict[str, Any] = {"blind": [[SIGNAL, reason] for reason in reasons], "window": dict(window)}
    if devices:
        busiest = max(devices, key=lambda d: d.get("traced", {}).get("total_kernels", 0))
        result |= {"device": busiest["device"], "timing": busiest["timing"], "devices": devices}
        if busiest.get("traced", {}).get("total_kernels"):
            result["traced"] = busiest["traced"]
    return result


def _ask(library: ctypes.CDLL, function: Any, *arguments: Any) -> dict[str, Any] | None:
    """The JSON object that a native call answers with; None where it has nothing."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    length = function(*arguments, text, len(text))
    if length < 0:  # longer than ever seen: windows wait in the tracer, other answers are made again
        text = ctypes.create_string_buffer(-length)
        again = library.rw_tracer_collect if function is library.rw_tracer_run_window else function
        length = again(*(arguments if again is function else ()), text, len(text))
    if length <= 0:
        return None
    answer: dict[str, Any] = json.loads(text.raw[:length])
    return answer


def _load(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        version = library.rw_tracer_abi_version()
    except (OSError, AttributeError) as error:
        raise TracerUnavailable(f"{path} cannot be loaded: {error}") from None
    if version != ABI_VERSION:
        raise TracerUnavailable(f"{path} speaks version {version} of the border, not {ABI_VERSION}; install it again")
    library.rw_tracer_live_flag.restype = ctypes.c_void_p
    library.rw_tracer_mark_slots.restype = ctypes.c_void_p
    library.rw_tracer_mark_slots.argtypes = [ctypes.POINTER(ctypes.c_size_t)]
    for name in ("run_window", "collect", "neighbours", "version_notes", "status", "calibrate", "histogram"):
        getattr(library, f"rw_tracer_{name}").restype = ctypes.c_int64
    library.rw_tracer_open.argtypes = [*_TEXT]
    library.rw_tracer_enable_graph_level.argtypes = [*_TEXT]
    library.rw_tracer_run_window.argtypes = [ctypes.c_uint32, *_TEXT]
    library.rw_tracer_version_notes.argtypes = [ctypes.c_uint32, *_TEXT]
    library.rw_tracer_start.argtypes = [ctypes.c_uint32, ctypes.c_uint32]
    library.rw_tracer_calibrate.argtypes = [ctypes.c_int32, ctypes.c_int32, *_TEXT]
    library.rw_tracer_histogram.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t, *_TEXT]
    for name in ("collect", "neighbours", "status"):
        getattr(library, f"rw_tracer_{name}").argtypes = [*_TEXT]
    return library


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
