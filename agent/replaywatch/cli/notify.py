"""`replaywatch notify test`"""

from __future__ import annotations

import argparse
import os
import time

from replaywatch.collector.options import COMMAND, OPTIONS, settings
from replaywatch.contract.options import add_arguments


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments: the collector's own options, so that what is tested is what will be used."""
    parser.add_argument("verb", choices=("test",), help="open and close a test incident at every destination")
    add_arguments(parser, COMMAND, OPTIONS)


def main(arguments: argparse.Namespace) -> int:
    """Exit status 1 when a destination refused, 2 when none is set."""
    from replaywatch.collector.destinations import destinations_of
    from replaywatch.notify.trial import send_trials

    options = settings(vars(arguments), os.environ)
    destinations = destinations_of(options)
    if not destinations:
        print("no destination is set; see docs/notifications.md")
        return 2
    trials = send_trials(
        destinations, int(time.time()), public_url=options.public_url or "", runbooks=options.runbook_url or "docs"
    )
    for trial in trials:
        print(f"{trial.destination}: {'delivered' if trial.outcome.delivered else trial.outcome.error}")
    return 0 if all(trial.outcome.delivered for trial in trials) else 1
