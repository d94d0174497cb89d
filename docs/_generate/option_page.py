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
INJECTION_TEXT: Final = """\
## The injected tracer

`replaywatch run --inject` sets `CUDA_INJECTION64_PATH`, so that the CUDA driver loads the native tracer into every CUDA
process. In one without Python it traces kernels on its own, and reads these variables when CUDA is initialised; a value
that is no number above 0 is as good as none. From the first stretch on replays take 5 to 10 % longer for as long as the
process lives. Where Python runs, what is traced is decided by the probe and its options alone.

| environment | default | unit | meaning |
|---|---|---|---|
| `REPLAYWATCH_SOCKET` | none |  | The agent's unix datagram socket; none: nothing is traced. `run` sets the probe's |
| `REPLAYWATCH_TRACE_FIRST_MS` | 3000 | ms | Time to the first stretch |
| `REPLAYWATCH_TRACE_PERIOD_MS` | 60000 | ms | Time from stretch to stretch; of graphs as a whole: the length of one |
| `REPLAYWATCH_TRACE_WINDOW_MS` | 100 | ms | Length of a stretch, at most 60000; of graphs as a whole 5000 |
| `REPLAYWATCH_GRAPH_TRACE` | none |  | 1: replays are timed as a whole, without their kernels, from the start on |
| `REPLAYWATCH_CHAIN_INJECTION` | none |  | Library that was injected before, called first; beside it nothing is seen |
"""


def page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        f"## `replaywatch agent`\n\n{markdown_table(AGENT, AGENT_OPTIONS)}",
        f"## `replaywatch collector`\n\n{markdown_table(COLLECTOR, COLLECTOR_OPTIONS)}",
        f"## `replaywatch admission`\n\n{markdown_table(ADMISSION, ADMISSION_OPTIONS)}",
        f"## The probe, and `replaywatch run`\n\n{PROBE_TEXT}\n{markdown_table(PROBE, option_rows())}",
        INJECTION_TEXT,
    ]
    return "\n".join(parts)
