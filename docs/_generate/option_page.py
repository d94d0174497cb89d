"""The page of all options, from the tables that the programs read."""

from __future__ import annotations

from typing import Final

from replaywatch.admission.options import COMMAND as ADMISSION
from replaywatch.admission.options import OPTIONS as ADMISSION_OPTIONS
from replaywatch.agent.options import COMMAND as AGENT
from replaywatch.agent.options import OPTIONS as AGENT_OPTIONS
from replaywatch.collector.options import COMMAND as COLLECTOR
from replaywatch.collector.options import OPTIONS as COLLECTOR_OPTIONS
from replaywatch.contract.options import markdown_table
from replaywatch.probe.settings import COMMAND as PROBE
from replaywatch.probe.settings import option_rows

INTRODUCTION: Final = """\
# Options

Made from the programs' own tables by `python docs/_generate/pages.py`. A value comes from the command line, else from
the environment variable, else from the default; an empty variable counts as unset. Secrets are read from the
environment or from files only, never from a command line, which every user of the machine can read. Ratios are 0 to 1.
"""
PROBE_TEXT: Final = """\
The probe runs inside the serving process and reads the environment when it starts; `replaywatch run` takes the same
options as flags, `replaywatch.probe.start` as keyword arguments. A bad value is as good as none: the default is used
and one line is logged, because a serving process must start. `REPLAYWATCH_PROBE=1` starts the probe where an image
carries `replaywatch.pth` or `sitecustomize` finds it; `0` leaves a process alone.
"""


def page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        f"## `replaywatch agent`\n\n{markdown_table(AGENT, AGENT_OPTIONS)}",
        f"## `replaywatch collector`\n\n{markdown_table(COLLECTOR, COLLECTOR_OPTIONS)}",
        f"## `replaywatch admission`\n\n{markdown_table(ADMISSION, ADMISSION_OPTIONS)}",
        f"## The probe, and `replaywatch run`\n\n{PROBE_TEXT}\n{markdown_table(PROBE, option_rows())}",
    ]
    return "\n".join(parts)
