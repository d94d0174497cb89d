"""Writing dashboards, rules and provisioning files into a folder of the operator's choice."""

from __future__ import annotations

from pathlib import Path

from replaywatch.contract.errors import ConfigurationError
from replaywatch.dashboards.board import board_text
from replaywatch.dashboards.boards import BOARDS
from replaywatch.dashboards.provisioning import PAGE, provider_text, source_text
from replaywatch.dashboards.rule import RuleSettings
from replaywatch.dashboards.rules import rules_text


def export(folder: Path, settings: RuleSettings | None = None, page: str = PAGE) -> list[Path]:
    """Write everything below a folder, which is made; the files, in order. Raises: ConfigurationError.

    `page` is where browsers reach the collector, for links from exemplars.
    """
    texts = {
        **{f"grafana/{board.uid}.json": board_text(board) for board in BOARDS},
        "provisioning/dashboards/replaywatch.yml": provider_text(),
        "provisioning/datasources/prometheus.yml": source_text(page=page),
        "rules/replaywatch.rules.yml": rules_text(settings),
    }
    files = []
    for name, text in texts.items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be written ({error.strerror}); choose another folder") from None
        files.append(file)
    return files
