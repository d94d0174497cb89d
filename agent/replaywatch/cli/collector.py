"""`replaywatch collector`"""

from __future__ import annotations

import argparse
import os

from replaywatch.collector.options import COMMAND, OPTIONS, settings
from replaywatch.contract.options import add_arguments


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments, from the collector's table of options."""
    add_arguments(parser, COMMAND, OPTIONS)


def main(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from replaywatch.cli.main import log_to_stderr
    from replaywatch.collector.serve import run

    log_to_stderr()
    run(settings(vars(arguments), os.environ))
    return 0
