"""`replaywatch`: the commands. Only this package prints and exits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Final

from replaywatch.contract.errors import ReplaywatchError

# Command, module that has `configure(parser)` and `main(arguments) -> exit status`, one line of help.
COMMANDS: Final = (
    ("analyze", "replaywatch.cli.analyze", "judge traces, logs and metrics: what graphs cost or save, and why"),
    ("demo", "replaywatch.cli.demo", "see the whole product work on recordings of a real GPU"),
    ("run", "replaywatch.cli.run", "run a command with the probe inside it and its children"),
    ("doctor", "replaywatch.cli.doctor", "say what will be seen on this host and in a process, and why not"),
    ("agent", "replaywatch.cli.agent", "the sidecar: receive from probes, expose metrics, ship to the collector"),
    ("collector", "replaywatch.cli.collector", "the service: ingest, detect, incidents, webhooks, page"),
    ("store", "replaywatch.cli.store", "tokens of the collector, and its store into a file and back"),
    ("notify", "replaywatch.cli.notify", "try every destination that the collector would tell"),
    ("admission", "replaywatch.cli.admission", "the webhook that gives labelled pods of Kubernetes the probe"),
    ("dashboards", "replaywatch.cli.dashboards", "push, compare or export Grafana dashboards and Prometheus rules"),
)


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; only the named command's module is imported, so that `--help` and `run` stay quick."""
    parser = argparse.ArgumentParser(
        prog="replaywatch",
        description="Sees when CUDA Graphs are off, half off, too small or harmful: the cost, the cause, the change.",
    )
    parser.add_argument("--version", action="version", version=f"replaywatch {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module, text in COMMANDS:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == command:
            import_module(module).configure(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((a for a in arguments if not a.startswith("-")), None)
    known = {name: module for name, module, _ in COMMANDS}
    try:
        parsed = build_parser(command if command in known else None).parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = import_module(known[parsed.command]).main
        return run(parsed)
    except ReplaywatchError as error:
        print(f"replaywatch: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"replaywatch: {_missing(command, error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except KeyboardInterrupt:
        return 130


def log_to_stderr() -> None:
    """Servers say on standard error what they do; the chatter of the libraries below them stays out."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("httpx", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # What remains is that a store's layout was brought up to date.
    logging.getLogger("alembic.runtime.migration").addFilter(lambda r: r.getMessage().startswith("Running"))


def _missing(command: str | None, error: ModuleNotFoundError) -> str:
    extras = {"analyze": "analyze", "agent": "agent", "dashboards": "dashboards"}
    extra = extras.get(command or "", "server")
    return f"{command} needs the package {error.name}: install it with pip install 'replaywatch[{extra}]'"


def _version() -> str:
    try:
        return metadata.version("replaywatch")
    except metadata.PackageNotFoundError:
        return "of a checkout"


if __name__ == "__main__":
    sys.exit(main())
