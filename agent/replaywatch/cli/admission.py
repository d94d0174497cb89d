"""`replaywatch admission`"""

from __future__ import annotations

import argparse
import os

from replaywatch.admission.options import COMMAND, OPTIONS, settings
from replaywatch.contract.options import add_arguments


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments, from the webhook's table of options."""
    add_arguments(parser, COMMAND, OPTIONS)


def main(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from replaywatch.admission.serve import run
    from replaywatch.cli.main import log_to_stderr

    log_to_stderr()
    run(settings(vars(arguments), os.environ))
    return 0
