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

from replaywatch.probe.engines.vllm_config import mode_name, reach

VARIABLE = "REPLAYWATCH_PROBE_VLLM_ASKED"
MAX_ENGINES = 16
MAX_HEARD = 4
_TELLING = ("cudagraph", "cuda graph", "enforce eager")


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
    return any(w in lower for w in ("setting cudagraph_mode", "overriding", "disabling", "disabled", "setting it to"))


def asked_of(arguments: Any) -> dict[str, Any]:
    """What `EngineArgs` ask for: mode, whether eager is forced, sizes. Nothing where the defaults were left."""
    compilation = getattr(arguments, "compilation_config", None)
    mode = compilation.get("cudagraph_mode") if isinstance(compilation, dict) else reach(compilation, "cudagraph_mode")
    eager = bool(getattr(arguments, "enforce_eager", False))
    asked: dict[str, Any] = {"mode": "NONE" if eager else mode_name(mode)}
    if eager:
        asked["flag"] = _on_command_line("--enforce-eager")
    return {key: value for key, value in asked.items() if value}


def remember(vllm_config: Any, asked: Mapping[str, Any], heard: list[str]) -> None:
    """Keep what was asked for an engine, for this process and those that it starts."""
    kept = _read()
    kept[_key(vllm_config)] = {**asked, "heard": heard}
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


def _key(vllm_config: Any) -> str:
    return str(getattr(vllm_config, "instance_id", None) or "")[:64]


def _read() -> dict[str, Any]:
    try:
        kept = json.loads(os.environ.get(VARIABLE) or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _on_command_line(flag: str) -> bool:
    import sys

    return flag in sys.argv
