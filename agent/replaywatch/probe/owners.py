"""Who captured a graph, found once at capture by walking the frames: an engine, Inductor, or the user's own code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
# Parts of an engine with graphs of their own, by any frame outwards. Source: vLLM 0.9.2 to 0.33.0.
_PARTS = {
    "vllm": (
        ("vllm.v1.spec_decode.", "draft"),
        ("vllm.v1.worker.gpu.spec_decode.", "draft"),
        ("vllm.v1.worker.encoder_cudagraph", "encoder"),
    ),
}
_PASSED_OVER = ("torch", "contextlib", "replaywatch", "functools")
MAX_FRAMES = 64


def owner_of_caller() -> str:
    """Owner of the code that called into the probe: inductor, vllm, vllm draft, sglang, transformers, ..., or user."""
    frame: FrameType | None = sys._getframe(1)
    owner: str | None = None
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        name = str(frame.f_globals.get("__name__") or "")
        owner = owner or _first(name, _OWNERS)
        if owner is not None:
            part = _first(name, _PARTS.get(owner, ()))
            if part is not None or owner not in _PARTS:
                return f"{owner} {part}" if part else owner
        frame = frame.f_back
    return owner or "user"


def component_of(owner: str) -> str | None:
    """The contract's component of what an owner captured: draft for a draft model, None for the engine itself.

    An encoder runs inside the engine's own steps, so its graphs stay with those.
    """
    return "draft" if owner.endswith(" draft") else None


def _first(name: str, table: Iterable[tuple[str, str]]) -> str | None:
    return next((word for prefix, word in table if name.startswith(prefix)), None)


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
