"""Tables of docs/scaling.md from what was measured and kept as data.

Run: `PYTHONPATH=agent:detectors:collector:tests python tests/fleet/measured.py` after one of
`tests/fleet/chaos.py --json docs/data/chaos.json` and `tests/bench/bench_agent.py --json docs/data/bench_agent.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE, DATA = ROOT / "docs/scaling.md", ROOT / "docs/data"
PARTS = ("agent killed", "ingest killed", "worker killed", "bus node killed", "database killed")


def chaos(told: Mapping[str, Any]) -> str:
    """What came of minutes of kills."""
    machine, batches, watched = told["machine"], told["batches"], told["windows through agents"]
    messages, done = told["messages"], told["done"]
    kills = ", ".join(f"{part.removesuffix(' killed')} {done.get(part, 0)}" for part in PARTS)
    postgres = machine["postgres"].removeprefix("postgres (PostgreSQL) ").split()[0]
    arrived = f"stored {watched['stored']:,}; {watched['twice']} twice, {watched['lost_otherwise']} unexplained"
    sockets = f"{watched['lost_in_sockets']} were still in the socket of an agent that was killed, never taken"
    rows = (
        ("batches acknowledged", f"{batches['batches']:,}", f"{batches['missing']} missing, {batches['twice']} twice"),
        ("windows in them", f"{batches['windows']:,}", f"{batches['stored_windows'] - watched['stored']:,} stored"),
        ("windows that probes gave to agents", f"{watched['sent']:,}", arrived),
        ("of these lost", sockets, f"{watched['taken_and_lost']} that an agent had taken"),
        ("windows judged, by the hourly sums", f"{told['windows stored']:,}", f"{told['windows in hourly sums']:,}"),
        ("incidents and messages", f"{len(told['incidents'])} incidents", f"{messages['keys']} messages"),
    )
    head = (
        f"Measured {told['measured']} on {machine['cores']} cores ({machine['cpu']}) with nats-server "
        f"{machine['nats-server'].rpartition('v')[2]}, PostgreSQL {postgres}, Python {machine['python']}: "
        f"{told['minutes']:.0f} minutes under load, kills of {kills}; {batches['attempts at sending']:,} attempts at "
        "sending."
    )
    return "\n".join((head, "", "| | at the source | at the end |", "|---|---|---|", *map(_row, rows)))


def agent(told: Mapping[str, Any]) -> str:
    """What the agent costs."""
    machine = told["machine"]
    rows = (
        (
            f"{load['windows_per_second']:,.1f}",
            f"{load['core_share'] * 100:.2f} %",
            f"{load['peak_bytes'] / 2**20:.1f} MiB",
            f"{load['sent']:,.0f}",
            f"{load['dropped_at_the_socket']:,.0f}",
            f"{load['arrived']:,.0f}",
        )
        for load in told["loads"]
    )
    head = (
        f"Measured {told['measured']} on {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, "
        f"{told['seconds']:.0f} s each; devices: {machine['devices']}."
    )
    names = "| windows a second | of a core | peak memory | sent | dropped at the socket | arrived |"
    return "\n".join((head, "", names, "|---:|---:|---:|---:|---:|---:|", *map(_row, rows)))


SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"chaos": chaos, "bench_agent": agent}


def page(text: str) -> str:
    """The page with its tables made anew."""
    for name, make in SECTIONS.items():
        mark = f"<!-- {name} -->"
        before, _, rest = text.partition(mark)
        after = rest.partition(mark)[2]
        table = make(json.loads((DATA / f"{name}.json").read_text()))
        text = f"{before}{mark}\n{table}\n{mark}{after}"
    return text


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
