"""`replaywatch agent`"""

from __future__ import annotations

import argparse

from replaywatch.agent.options import COMMAND, OPTIONS, agent_options
from replaywatch.contract.options import add_arguments


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments, from the agent's table of options."""
    add_arguments(parser, COMMAND, OPTIONS)


def main(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from replaywatch.agent.serve import run
    from replaywatch.cli.main import log_to_stderr

    log_to_stderr()
    run(agent_options(vars(arguments)))
    return 0
