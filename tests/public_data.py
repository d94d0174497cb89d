"""Real files that other people published; they lie beside the checkout and are never part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "shared" / "data"


def public_file(name: str) -> Path:
    """A file of the folder, or a skip that says what is missing."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"../shared/data/{name} is not beside this checkout")
    return path
