"""One table of options per process makes its command line, environment variables, validation, help and docs.

A process declares ``OPTIONS: tuple[Option, ...]`` and a frozen dataclass with one field per row. The value comes from
the command line, else from ``REPLAYWATCH_<COMMAND>_<NAME>``, else from the default. Secrets are rows too, but are never
accepted on a command line, where every user of the machine could read them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from replaywatch.contract.errors import ConfigurationError

OptionType = type[str] | type[int] | type[float] | type[bool] | type[Path]
OptionValue = str | int | float | bool | Path | None
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Option:
    """One row. `name` is as on the command line (``tick-seconds``); `minimum` and `maximum` are inclusive.

    Numbers are base units; `unit` is for people. A `secret` is read from the environment only.
    """

    name: str
    type: OptionType
    default: OptionValue
    unit: str
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def field(self) -> str:
        """Name of the dataclass field and of the argparse destination."""
        return self.name.replace("-", "_")

    def variable(self, command: str) -> str:
        """Name of the environment variable."""
        return f"REPLAYWATCH_{command}_{self.name}".replace("-", "_").upper()

    def read(self, value: object, where: str) -> OptionValue:
        """A value that was given as text, checked. Raises: ConfigurationError, naming `where` it was given."""
        try:
            return self._checked(self._typed(value))
        except ValueError as error:
            shown = "the value" if self.secret else repr(str(value)[:80])
            raise ConfigurationError(f"{where} cannot be {shown}: {error}") from None

    def _typed(self, value: object) -> OptionValue:
        if self.type is bool:
            word = str(value).strip().lower()
            if word not in _WORDS:
                raise ValueError("give true or false")
            return _WORDS[word]
        text = str(value)
        if self.type in (int, float):
            try:
                return self.type(text)
            except ValueError:
                raise ValueError("give a whole number" if self.type is int else "give a number") from None
        if not text.strip():
            raise ValueError("it is empty")
        return self.type(text)

    def _checked(self, value: OptionValue) -> OptionValue:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not isfinite(value):
                raise ValueError("give a finite number")
            if self.minimum is not None and value < self.minimum:
                raise ValueError(f"the least is {self.minimum:g} {self.unit}".rstrip())
            if self.maximum is not None and value > self.maximum:
                raise ValueError(f"the most is {self.maximum:g} {self.unit}".rstrip())
        if self.choices and value not in self.choices:
            raise ValueError(f"give one of {', '.join(self.choices)}")
        return value


def add_arguments(parser: argparse.ArgumentParser, command: str, options: Sequence[Option]) -> None:
    """Give a parser one argument per row; secrets only show up in the help as environment variables."""
    for option in options:
        if option.secret:
            continue
        unit = f" [{option.unit}]" if option.unit else ""
        text = f"{option.help}{unit} (default: {_shown(option.default)}; {option.variable(command)})".replace("%", "%%")
        if option.type is bool:
            parser.add_argument(
                f"--{option.name}", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
            )
        else:
            metavar = option.type.__name__.upper()
            parser.add_argument(f"--{option.name}", default=argparse.SUPPRESS, metavar=metavar, help=text)
    secrets = [f"{o.variable(command)}: {o.help}" for o in options if o.secret]
    if secrets:
        parser.epilog = "Secrets come from the environment. " + " ".join(secrets)


def resolve(
    command: str, options: Sequence[Option], given: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, OptionValue]:
    """Every row's value by field name: as given on the command line, else from the environment, else the default.

    Shape: `given` is ``vars(parser.parse_args())``; keys that are no row are ignored, as are empty variables.
    Raises: ConfigurationError.
    """
    values: dict[str, OptionValue] = {}
    for option in options:
        variable = option.variable(command)
        if option.field in given and not option.secret:
            values[option.field] = option.read(given[option.field], f"--{option.name}")
        elif environment.get(variable, ""):
            values[option.field] = option.read(environment[variable], variable)
        else:
            values[option.field] = option.default
    return values


Settings = TypeVar("Settings")


def settle(
    kind: type[Settings],
    command: str,
    options: Sequence[Option],
    given: Mapping[str, object],
    environment: Mapping[str, str],
) -> Settings:
    """The process's typed settings, a dataclass with one field per row. Raises: ConfigurationError."""
    values: dict[str, Any] = dict(resolve(command, options, given, environment))
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    assert names == set(values), f"{kind.__name__} and its options differ in {sorted(names ^ set(values))}"
    return kind(**values)


def markdown_table(command: str, options: Sequence[Option]) -> str:
    """The table for the documentation, one row per option in the order of the table."""
    rows = ["| option | environment | default | unit | meaning |", "|---|---|---|---|---|"]
    for o in options:
        flag = "environment only" if o.secret else f"`--{o.name}`"
        rows.append(f"| {flag} | `{o.variable(command)}` | {_shown(o.default)} | {o.unit} | {o.help} |")
    return "\n".join(rows) + "\n"


def _shown(default: OptionValue) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return "true" if default else "false"
    return f"{default:g}" if isinstance(default, float) else str(default)
