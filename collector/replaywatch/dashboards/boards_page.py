"""The page of the documentation about the dashboards, made from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from replaywatch.dashboards.board import Board
from replaywatch.dashboards.boards import BOARDS
from replaywatch.dashboards.panel import Panel

_HEAD: Final = """# Dashboards

Made from `replaywatch.dashboards`; `dashboards/generate.py` writes this page.

```console
export GRAFANA_TOKEN=glsa_...          # a service account with the role Editor, Admin with --prometheus-url
replaywatch dashboards diff https://grafana.example.com
replaywatch dashboards push https://grafana.example.com --prometheus-url http://prometheus:9090 --page-url http://127.0.0.1:8790
replaywatch dashboards export FOLDER   # dashboards, provisioning files and rules
```

`push` makes the folder *Replaywatch*, the data source where one is named, and the dashboards; what is right already
is left alone, so that it can run after every release. `diff` says what a push would change and ends with status 1
when it would. Without an API the files do: `dashboards/provisioning` and `dashboards/grafana` go where
[compose](deploy/compose.md) and the [chart](deploy/kubernetes.md) put them.

Firing alerts and changes of a configuration are annotations on every dashboard about workloads. Rows of tables lead
to the next dashboard with what was chosen; points of counters lead to the workload on [the page](page.md), where
Prometheus keeps [exemplars](metrics.md#exemplars).

**Not opened in a running Grafana.** None could be had as a package where they were made, so there are no pictures of
them. What stands for it: every query of every panel, annotation and variable is run in a real Prometheus that scrapes
a real agent and collector, and returns data; the JSON is checked by TypeScript against the types that Grafana
publishes; `push` and `diff` run against a stand-in for the routes that they use.
"""


def boards_page() -> str:
    """docs/dashboards.md."""
    return _HEAD + "".join(map(_section, BOARDS))


def _section(board: Board) -> str:
    chosen = ", ".join(f"`{v.name}`" for v in board.variables)
    about = f"{board.help} Variables: {chosen}." if chosen else board.help
    return f"\n## {board.title}\n\n{about}\n\n| panel | what it shows |\n|---|---|\n" + "".join(_rows(board))


def _rows(board: Board) -> Iterator[str]:
    for panel in board.panels:
        yield f"| {panel.title} | {panel.help}{_drill(panel)} |\n"


def _drill(panel: Panel) -> str:
    if panel.drill is None:
        return ""
    title = next(board.title for board in BOARDS if board.uid == panel.drill)
    return f" Rows lead to *{title}*."
