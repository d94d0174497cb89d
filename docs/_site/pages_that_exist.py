"""A hook of the site: fills `folder/*` in the navigation, and leaves out pages that are not written yet.

The navigation in mkdocs.yml is the whole plan; a page joins the site when its file does. A page that exists without a
place in the navigation fails the build.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

LOG = logging.getLogger("mkdocs.hooks.pages")


def on_config(config: Any) -> Any:
    """Called by MkDocs with its settings."""
    config["nav"] = _existing(config["nav"], Path(config["docs_dir"]))
    return config


def _existing(entries: list[Any], docs: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        title, place = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(place, str) and place.endswith("/*"):
            folder = docs / place.removesuffix("/*")
            kept.extend({page.stem: page.relative_to(docs).as_posix()} for page in sorted(folder.glob("*.md")))
        elif isinstance(place, list):
            if below := _existing(place, docs):
                kept.append({title: below})
        elif (docs / place).is_file():
            kept.append(entry)
        else:
            LOG.info("%s is not written yet", place)
    return kept
