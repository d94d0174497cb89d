"""`replaywatch analyze FILE...`"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from replaywatch.contract.verdict import SEVERITIES

if TYPE_CHECKING:
    from rich.console import Console

    from replaywatch.analyze.result import Report

EPILOG = """exit status: 0 nothing at or above --fail-on; 1 findings at or above it; 2 something could not be judged
(unreadable, blind or still warming up). JSON fields are described in docs/analyze-json.md."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="Kineto or Chrome trace (plain or gzip), Nsight Systems SQLite export, engine log, metrics text, "
        "or the http address of an engine's /metrics",
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON to standard output")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write one self-contained page")
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        default="warn",
        help="least severity of a finding that gives exit status 1 (default: warn; none never does)",
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def main(arguments: argparse.Namespace) -> int:
    """Judge the files and say so."""
    from rich.console import Console

    from replaywatch.analyze.run import analyze

    errors = Console(stderr=True)
    report = (
        analyze(arguments.files)
        if arguments.no_progress or not errors.is_terminal
        else _with_progress(arguments.files, errors)
    )
    if arguments.html is not None:
        _write_html(report, arguments.html)
    if arguments.json:
        _write_json(report)
    else:
        _write_text(report)
    return report.exit_status(arguments.fail_on)


def _with_progress(files: list[str], console: Console) -> Report:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from replaywatch.analyze.run import analyze

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:

        def start(source: str) -> object:
            task = bar.add_task(Path(source).name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        return analyze(files, start)  # type: ignore[arg-type]


def _write_json(report: Report) -> None:
    from replaywatch.analyze.schema import report_json

    json.dump(report_json(report), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _write_text(report: Report) -> None:
    from rich.console import Console

    from replaywatch.analyze.terminal import print_report

    print_report(report, Console(highlight=False, soft_wrap=False))


def _write_html(report: Report, path: Path) -> None:
    from replaywatch.analyze.html import render
    from replaywatch.contract.errors import ConfigurationError

    try:
        path.write_text(render(report), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the page cannot be written to {path}: {error.strerror}") from None
