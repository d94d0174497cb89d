"""The published traces beside the checkout; tests that need them skip where they are absent."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"


def published(name: str) -> Path:
    """Path of a published file. Skips the test where the folder is missing."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"published data is not beside the checkout ({name})")
    return path
