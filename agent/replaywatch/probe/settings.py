"""The probe's options: one table makes the environment variables, keyword arguments, validation, help and docs.

The table is plain tuples, because the contract's `Option` brings argparse and dataclasses into the serving process.
`option_rows()` turns it into `Option`s for the command line and the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replaywatch.contract.options import Option

COMMAND = "probe"
Value = str | int | float | bool | None
Row = tuple[str, type, Value, str, str, float | None, float | None]

# name, type, default, unit, help, minimum, maximum
TABLE: tuple[Row, ...] = (
    ("socket", str, None, "", "The agent's unix datagram socket; none: in XDG_RUNTIME_DIR, else /run", None, None),
    ("window-seconds", float, 5.0, "s", "Length of a window", 0.05, 300),
    ("time-one-in", int, 64, "replays", "Time one replay in so many with CUDA events; 0 times none", 0, 1 << 20),
    ("hang-seconds", float, 30.0, "s", "Time after which a replay that does not end is reported", 0.1, 3600),
    ("trace-ms", float, 100.0, "ms", "Length of a traced stretch", 1, 1000),
    ("trace-every-seconds", float, 60.0, "s", "Time between traced stretches", 0.1, 86_400),
    ("budget-ratio", float, 0.005, "", "Share of the process's time that watching may cost", 0.0001, 0.1),
    ("graphs", bool, True, "", "Hook torch.cuda.CUDAGraph", None, None),
    ("inductor", bool, True, "", "Hook torch.compile's recordings and skip reasons", None, None),
    (
        "kernels",
        bool,
        False,
        "",
        "Trace kernels in short stretches; from the first on, replays take 5 to 10 % longer "
        "for as long as the process lives",
        None,
        None,
    ),
    (
        "graph-trace",
        bool,
        False,
        "",
        "Time all replays as a whole through CUPTI, from before CUDA is initialised or not at all; "
        "neither --kernels nor torch.profiler then sees the kernels of graphs",
        None,
        None,
    ),
    ("model-name", str, None, "", "Name of the model, where the engine does not tell", None, None),
    ("component", str, None, "", "Part of the model that this process runs (draft, encoder)", None, None),
)
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Settings:
    """The probe's settings; one attribute per row of TABLE."""

    __slots__ = ("problems", *(row[0].replace("-", "_") for row in TABLE))

    socket: str
    window_seconds: float
    time_one_in: int
    hang_seconds: float
    trace_ms: float
    trace_every_seconds: float
    budget_ratio: float
    graphs: bool
    inductor: bool
    kernels: bool
    graph_trace: bool
    model_name: str | None
    component: str | None
    problems: list[str]


def variable(name: str) -> str:
    """Environment variable of a row."""
    return f"REPLAYWATCH_{COMMAND}_{name}".replace("-", "_").upper()


def settle(given: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from keyword arguments, else the environment, else the defaults.

    Never raises: inside a serving process a bad value is as good as none. What was wrong is listed in `problems`.
    """
    settings = Settings()
    settings.problems = []
    for row in TABLE:
        field, name = row[0].replace("-", "_"), variable(row[0])
        where, value = (field, given[field]) if given.get(field) is not None else (name, environment.get(name) or None)
        setattr(settings, field, row[2] if value is None else _checked(row, value, where, settings.problems))
    known = {row[0].replace("-", "_") for row in TABLE}
    settings.problems += [f"{key} is no option of the probe" for key in given if key not in known]
    settings.socket = settings.socket or default_socket(environment)
    return settings


def default_socket(environment: Mapping[str, str] = os.environ) -> str:
    """Where the agent listens when nobody says otherwise; the agent's own rule."""
    return f"{environment.get('XDG_RUNTIME_DIR') or '/run'}/replaywatch/agent.sock"


def option_rows() -> tuple[Option, ...]:
    """The table as the contract's options, for the command line and the documentation."""
    from replaywatch.contract.options import Option

    return tuple(Option(*row) for row in TABLE)


def _checked(row: Row, value: object, where: str, problems: list[str]) -> Value:
    _, kind, default, unit, _, least, most = row
    try:
        typed: Value = _WORDS[str(value).strip().lower()] if kind is bool else kind(value)
        if kind in (int, float) and not _within(float(typed or 0), least, most):
            raise ValueError
        return typed
    except (ValueError, TypeError, KeyError):
        bounds = f" from {least:g} to {most:g} {unit}".rstrip() if least is not None and most is not None else ""
        problems.append(f"{where} cannot be {str(value)[:40]!r}; give a {kind.__name__}{bounds} (using {default})")
        return default


def _within(value: float, least: float | None, most: float | None) -> bool:
    return isfinite(value) and (least is None or value >= least) and (most is None or value <= most)
