"""Where a graph mode of vLLM was asked for, place by place, and the first place that parts from what was asked.

The places, in their order: command line, configuration file, environment (images and wrappers turn a variable into
arguments), `EngineArgs`, and what vLLM made of them.

Source: `vllm/engine/arg_utils.py`, `vllm/config/compilation.py`, read in 0.9.2 to 0.33.0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from replaywatch.probe.engines.command_line import FILE, LINE, Ask, as_object, asked_of_command, first, spells, switch
from replaywatch.probe.engines.vllm_config import mode_name, reach

ENVIRONMENT = "the environment"
ARGUMENTS = "EngineArgs"
ENABLED = "ENABLED"  # graphs were asked for, no mode was named
_COMPILATION = ("compilation-config", "cc", "O")
_COMPILATION_MODULE = "vllm.config.compilation"
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def asks_of(arguments: Any) -> list[Ask]:
    """What each place asks for, in the order of places; places that say nothing are left out."""
    asks = [ask_of_options(found, where) for where, found in asked_of_command(sys.argv[1:])]
    given = ask_of_arguments(arguments)
    if given is not None and given.mode == "NONE":  # no engine reads such a variable itself
        asks.append(_ask_of_environment(os.environ))
    return [ask for ask in (*asks, given) if ask is not None]


def intent_of(arguments: Any) -> dict[str, str]:
    """What was asked, who forced eager, and where a later place parts from it.

    Shape: `mode`, `by` and `parted`, each only where there is one; `mode` is the ask of the first place that has one.
    """
    asks = asks_of(arguments)
    if not asks:
        return {}
    asked, given = asks[0], first(ask for ask in asks if ask.where == ARGUMENTS)
    intent = {"mode": asked.mode}
    if given is not None and given.mode == "NONE":
        intent["by"] = author(next(ask for ask in asks if ask.mode == "NONE"))
    if not _agree(asked, given):
        other = first(ask for ask in asks[1:] if not _agree(asked, ask))
        said = f"{other.where} says {other.option}" if other else f"{ARGUMENTS} have the default"
        intent["parted"] = f"{asked.where} says {asked.option}, {said}"
    return intent


def author(ask: Ask) -> str:
    """Who asked for it, in words."""
    if ask.where == LINE:
        return f"the flag {ask.option}" if ask.option.startswith("-") else f"{ask.option} on the command line"
    if ask.where == FILE:
        return f"{ask.option} in the configuration file"
    if ask.where == ENVIRONMENT:
        return f"the variable {ask.option}"
    unread = any(where == FILE and not found for where, found in asked_of_command(sys.argv[1:]))
    caller = "the calling code" + (" or the configuration file, which was not read" if unread else "")
    return f"{ask.option}, set by {caller} (not on the command line)"


def ask_of_options(found: Mapping[str, str], where: str) -> Ask | None:
    """What options of a place ask for."""
    eager = switch(found, "enforce-eager")
    if eager:
        return Ask("NONE", "--enforce-eager", where)
    ask = _ask_of_compilation(_compilation(found).get, where)
    return ask or (Ask(ENABLED, "--no-enforce-eager", where) if eager is False else None)


def ask_of_arguments(arguments: Any) -> Ask | None:
    """What `EngineArgs` ask for; None where the defaults were left."""
    if getattr(arguments, "enforce_eager", False):
        return Ask("NONE", "enforce_eager=True", ARGUMENTS)
    compilation = getattr(arguments, "compilation_config", None)
    get = compilation.get if isinstance(compilation, dict) else _attributes(compilation)
    level = getattr(arguments, "optimization_level", None)
    ask = _ask_of_compilation(get, ARGUMENTS)
    return ask or (Ask("NONE", "optimization_level=0", ARGUMENTS) if _is_none(level) else None)


def _agree(asked: Ask, given: Ask | None) -> bool:
    if asked.mode == ENABLED:
        return given is None or given.mode != "NONE"
    return given is not None and given.mode == asked.mode


def _attributes(compilation: Any) -> Callable[[str], Any]:
    """Reads a compilation config; before it knew modes (0.10.1), its level was 0 where nobody set it."""

    def get(name: str) -> Any:
        return None if name == "level" and not hasattr(compilation, "cudagraph_mode") else reach(compilation, name)

    return get


def _ask_of_compilation(get: Callable[[str], Any], where: str) -> Ask | None:
    mode = mode_name(get("cudagraph_mode"))
    if mode:
        return Ask(mode, f"cudagraph_mode={mode}", where)
    if str(get("use_cudagraph")).lower() in _NO:
        return Ask("NONE", "use_cudagraph=false", where)
    if str(get("full_cuda_graph")).lower() in _YES:
        return Ask("FULL", "full_cuda_graph=true", where)
    names = () if _has_graphs_uncompiled() else ("mode", "level")
    for name in (*names, "optimization_level"):
        if _is_none(get(name)):
            return Ask("NONE", f"{name}=0", where)
    return None


def _has_graphs_uncompiled() -> bool:
    """Whether this vLLM keeps full graphs where nothing is compiled (0.33); earlier ones then have no graphs at all."""
    return reach(sys.modules.get(_COMPILATION_MODULE), "CUDAGraphMode.without_piecewise") is not None


def _is_none(level: Any) -> bool:
    """Whether a compilation mode or level is the one without compilation, for which vLLM's default is no graphs."""
    return level is not None and (mode_name(level) or str(level)) in ("NONE", "O0")


def _compilation(found: Mapping[str, str]) -> dict[str, Any]:
    """The compilation config that options spell: as JSON, name by name after a dot, or as a level."""
    merged: dict[str, Any] = {}
    for name, value in found.items():
        head, dot, rest = name.partition(".")
        if head[:1] == "O" and head[1:].isdigit():
            merged["optimization_level"] = head[1:]
        elif spells(name, "optimization-level"):
            merged["optimization_level"] = value
        elif not any(spells(head, option) for option in _COMPILATION):
            continue
        elif dot:
            merged[rest.replace("-", "_")] = value
        elif value.isdigit():
            merged["optimization_level"] = value
        else:
            merged.update(as_object(value))
    return merged


def _ask_of_environment(environment: Mapping[str, str]) -> Ask | None:
    for name in sorted(n for n in environment if n.upper().endswith("ENFORCE_EAGER")):
        value = environment[name].lower()
        if value in (*_YES, *_NO):
            return Ask("NONE" if value in _YES else ENABLED, f"{name}={value}", ENVIRONMENT)
    return None
