"""The few calls into libcuda that torch has no name for, through ctypes, and only into a library already loaded.

Nothing here loads a driver, initialises CUDA or creates a context.
"""

from __future__ import annotations

import os
import threading
from typing import Any

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_done = threading.local()


def libcuda() -> Any:
    """The driver library of this process as a ctypes object; None where the process has not loaded it."""
    import ctypes

    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def relax_capture_mode() -> bool:
    """Let this thread query events while another thread captures, as torch's own watchdog threads do.

    Without it a query from a second thread would fail another thread's capture in global mode. True when it is done,
    or when no driver is loaded and there is nothing to disturb.
    """
    if getattr(_done, "relaxed", False):
        return True
    library = libcuda()
    if library is None:
        return True
    import ctypes

    exchange = getattr(library, "cuThreadExchangeStreamCaptureMode", None)
    mode = ctypes.c_int(_RELAXED)
    _done.relaxed = exchange is not None and exchange(ctypes.byref(mode)) == 0
    return bool(_done.relaxed)


def is_capturing(stream: int) -> bool | None:
    """Whether a stream is being captured, or was and nobody ended it; None where the driver does not tell."""
    import ctypes

    library = libcuda()
    ask = getattr(library, "cuStreamIsCapturing", None) if library is not None else None
    status = ctypes.c_int(0)
    if ask is None or ask(ctypes.c_void_p(stream), ctypes.byref(status)) != 0:
        return None
    return status.value != 0


def nodes_being_captured(stream: int) -> int | None:
    """Nodes so far of the graph that a stream is capturing; None where it captures none or the driver does not tell.

    Source: cuStreamGetCaptureInfo's documentation allows queries of the graph while it is being captured.
    """
    import ctypes

    library = libcuda()
    info = getattr(library, "cuStreamGetCaptureInfo_v2", None) if library is not None else None
    get_nodes = getattr(library, "cuGraphGetNodes", None) if library is not None else None
    if info is None or get_nodes is None:
        return None
    status, number, graph = ctypes.c_int(0), ctypes.c_uint64(0), ctypes.c_void_p()
    result = info(ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph), None, None)
    if result != 0 or status.value != _ACTIVE or not graph.value:
        return None
    count = ctypes.c_size_t(0)
    if get_nodes(graph, None, ctypes.byref(count)) != 0:
        return None
    return count.value
