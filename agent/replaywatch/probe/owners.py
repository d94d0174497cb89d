"""Who captured a graph, found once at capture by walking the frames: an engine, Inductor, or the user's own code."""

from __future__ import annotations

import sys
from types import FrameType

# First match from the innermost frame outwards. Shape: prefix of a module's name, owner.
_OWNERS = (
    ("torch._inductor.", "inductor"),
    ("vllm.", "vllm"),
    ("sglang.", "sglang"),
    ("tensorrt_llm.", "trtllm"),
    ("transformers.", "transformers"),
    ("flashinfer.", "flashinfer"),
    ("text_generation_server.", "tgi"),
)
_PASSED_OVER = ("torch", "contextlib", "replaywatch", "functools")
MAX_FRAMES = 64


def owner_of_caller() -> str:
    """Owner of the code that called into the probe: inductor, vllm, sglang, trtllm, transformers, ..., or user."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        name = frame.f_globals.get("__name__") or ""
        for prefix, owner in _OWNERS:
            if name.startswith(prefix):
                return owner
        frame = frame.f_back
    return "user"


def place_of_caller() -> str | None:
    """File name and line of the nearest code that is neither torch's nor the probe's; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        name = str(frame.f_globals.get("__name__") or "")
        if name.split(".", 1)[0] not in _PASSED_OVER:
            return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return None
