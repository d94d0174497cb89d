"""Runtime and driver calls by what they mean for the device: a launch, a replay, a copy, a wait, a capture."""

from __future__ import annotations

import re
from typing import Final

LAUNCH: Final = 0
REPLAY: Final = 1
COPY: Final = 2
MEMSET: Final = 3
WAIT: Final = 4
CAPTURE_BEGIN: Final = 5
CAPTURE_END: Final = 6
INSTANTIATE: Final = 7
DESTROY: Final = 8
OTHER: Final = 9

# Nsight appends the version of the entry point (cudaLaunchKernel_v7000, ..._ptsz); CUPTI does not.
_SUFFIX: Final = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_PATTERNS: Final = (
    (REPLAY, re.compile(r"^(?:cuda|cu|hip)GraphLaunch$")),
    (LAUNCH, re.compile(r"^_*(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?(?:$|Grid|Kernel)")),
    (COPY, re.compile(r"^(?:cuda|cu|hip)Memcpy")),
    (MEMSET, re.compile(r"^(?:cuda|cu|hip)Memset")),
    (WAIT, re.compile(r"^(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize$")),
    (CAPTURE_BEGIN, re.compile(r"^(?:cuda|cu|hip)StreamBeginCapture")),
    (CAPTURE_END, re.compile(r"^(?:cuda|cu|hip)StreamEndCapture$")),
    (INSTANTIATE, re.compile(r"^(?:cuda|cu|hip)GraphInstantiate")),
    (DESTROY, re.compile(r"^(?:cuda|cu|hip)GraphExecDestroy$")),
)


def call_kind(name: str) -> int:
    """Kind of a CUDA or HIP call by its name; OTHER for calls that put nothing on the device and wait for nothing."""
    plain = _SUFFIX.sub("", name)
    return next((kind for kind, pattern in _PATTERNS if pattern.match(plain)), OTHER)


def is_blocking_copy(name: str) -> bool:
    """Whether a copy call returns only when the copy is done (cudaMemcpy, cuMemcpyDtoH), whatever its direction."""
    return "Async" not in name
