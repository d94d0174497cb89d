"""`replaywatch run -- COMMAND...`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from replaywatch.probe import launch
from replaywatch.probe.settings import option_rows


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments: the probe's options, then the command."""
    from replaywatch.contract.options import add_arguments

    add_arguments(parser, "probe", option_rows())
    parser.add_argument(
        "--inject",
        action="store_true",
        help="load the native tracer into CUDA processes without Python: it traces kernels for 100 ms in every 60 s, "
        "and replays take 5 to 10 %% longer for as long as the process lives; Python processes are left to --kernels",
    )
    parser.add_argument(
        "--install-pth",
        type=Path,
        metavar="SITE_PACKAGES",
        help="for images: write replaywatch.pth there, which starts the probe where REPLAYWATCH_PROBE=1; runs nothing",
    )
    parser.add_argument("watched", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to watch")


def main(arguments: argparse.Namespace) -> int:
    """Become the command; returns only for --install-pth."""
    if arguments.install_pth is not None:
        print(launch.install_pth(arguments.install_pth))
        return 0
    command = command_of(arguments.watched)
    for warning in launch.warnings_for(command, inject=arguments.inject):
        print(f"replaywatch: {warning}", file=sys.stderr)
    given = {o.field: getattr(arguments, o.field) for o in option_rows() if hasattr(arguments, o.field)}
    launch.run(command, given, inject=arguments.inject)
    return 0


def command_of(words: list[str]) -> list[str]:
    """What follows the double dash."""
    return words[1:] if words[:1] == ["--"] else words
