"""Everything that is generated, by its place in the repository."""

from __future__ import annotations

from pathlib import Path

from replaywatch.dashboards.board import board_text
from replaywatch.dashboards.boards import BOARDS
from replaywatch.dashboards.boards_page import boards_page
from replaywatch.dashboards.pages import alerts_page, metrics_page
from replaywatch.dashboards.provisioning import provider_text, source_text
from replaywatch.dashboards.rules import rules_text


def artifacts() -> dict[str, str]:
    """Text by path, relative to the repository's root."""
    return {
        **{f"dashboards/grafana/{board.uid}.json": board_text(board) for board in BOARDS},
        "dashboards/provisioning/dashboards/replaywatch.yml": provider_text(),
        "dashboards/provisioning/datasources/prometheus.yml": source_text(),
        "dashboards/rules/replaywatch.rules.yml": rules_text(),
        "docs/metrics.md": metrics_page(),
        "docs/alerts.md": alerts_page(),
        "docs/dashboards.md": boards_page(),
    }


def write(root: Path) -> list[str]:
    """Write what differs; the paths written."""
    written = []
    for name, text in artifacts().items():
        file = root / name
        if not file.is_file() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            written.append(name)
    return written
