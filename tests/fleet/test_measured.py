from __future__ import annotations

import json

from fleet.measured import DATA, PAGE, SECTIONS, page


def test_the_tables_of_the_page_are_what_was_measured() -> None:
    text = PAGE.read_text()
    assert all(text.count(f"<!-- {name} -->") == 2 for name in SECTIONS)
    assert page(text) == text


def test_the_run_of_kills_that_the_page_tells_of_lost_nothing() -> None:
    told = json.loads((DATA / "chaos.json").read_text())
    assert told["nothing lost, nothing twice"] is True
    assert told["minutes"] >= 10
    assert all(
        told["done"].get(f"{what} killed", 0) > 0 for what in ("agent", "ingest", "worker", "bus node", "database")
    )


def test_the_agent_that_the_page_tells_of_kept_its_budget() -> None:
    usual = json.loads((DATA / "bench_agent.json").read_text())["loads"][0]
    assert usual["core_share"] <= 0.01
    assert usual["peak_bytes"] <= 80 << 20
    assert usual["arrived"] == usual["sent"]
