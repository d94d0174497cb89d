"""What the operator asked of vLLM, kept where the processes that it starts can read it.

Arguments are resolved in the first process, graphs are captured in others. The engine's configuration travels between
them by pickle and enters the keys of the compile cache, so nothing may be added to it; a variable of the environment is
inherited by every child, however it is started.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from replaywatch.probe.engines.vllm_config import resolved_mode
from replaywatch.probe.engines.vllm_intent import intent_of

VARIABLE = "REPLAYWATCH_PROBE_VLLM_ASKED"
MAX_ENGINES = 16
MAX_HEARD = 4
COMPILE_SWITCH = "TORCH_COMPILE_DISABLE"  # vLLM reads it itself, and gives up what needs compilation
_TELLING = ("cudagraph", "cuda graph", "enforce eager", "torch_compile_disable")
_CHANGES = (
    "setting cudagraph_mode", "overriding", "disabling", "disabled", "setting it to", "fallback to", "falling back to",
    "running the draft eagerly",
)  # fmt: skip


class Heard(logging.Handler):
    """Keeps what vLLM logs about graph modes while it decides; the only place where it gives its reasons."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message that tells of a changed or disabled mode."""
        try:
            text = record.getMessage()
        except Exception:  # the probe's border: somebody else's arguments
            return
        lower = text.lower()
        if len(self.texts) < MAX_HEARD and any(word in lower for word in _TELLING) and tells_a_change(lower):
            self.texts.append(" ".join(text.split())[:200])

    def __enter__(self) -> Heard:
        logging.getLogger("vllm").addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("vllm").removeHandler(self)


def tells_a_change(lower: str) -> bool:
    """Whether a message about graphs says that a mode was changed or switched off."""
    return any(words in lower for words in _CHANGES)


def asked_of(arguments: Any) -> dict[str, Any]:
    """What was asked up to `EngineArgs`, as `intent_of` says it."""
    return dict(intent_of(arguments))


def remember(vllm_config: Any, asked: Mapping[str, Any], heard: list[str]) -> None:
    """Keep what was asked for an engine, for this process and those that it starts."""
    kept = _read()
    parted = asked.get("parted") or _parted_inside(vllm_config, asked)
    kept[_key(vllm_config)] = {**asked, "heard": [*([parted] if parted else ()), *heard]}
    while len(kept) > MAX_ENGINES:
        del kept[next(iter(kept))]
    os.environ[VARIABLE] = json.dumps(kept, separators=(",", ":"))


def recall(vllm_config: Any) -> dict[str, Any]:
    """What was asked for this engine; of the only engine known where the id was renewed on the way."""
    kept = _read()
    found = kept.get(_key(vllm_config))
    if found is None and len(kept) == 1:
        found = next(iter(kept.values()))
    return dict(found) if isinstance(found, dict) else {}


def _parted_inside(vllm_config: Any, asked: Mapping[str, Any]) -> str | None:
    """Where nothing that was asked turns graphs off, but vLLM did: a sentence that says so."""
    mode = asked.get("mode")
    if mode == "NONE" or resolved_mode(vllm_config) != "NONE":
        return None
    said = f"{mode} was asked for" if mode else "nothing asked for eager"
    switched = os.environ.get(COMPILE_SWITCH) == "1"
    return f"{said}, {f'{COMPILE_SWITCH}=1' if switched else 'vLLM itself'} turned graphs off"


def _key(vllm_config: Any) -> str:
    return str(getattr(vllm_config, "instance_id", None) or "")[:64]


def _read() -> dict[str, Any]:
    try:
        kept = json.loads(os.environ.get(VARIABLE) or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}
