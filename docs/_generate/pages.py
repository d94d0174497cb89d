"""Writes the generated pages of the documentation, or says which are stale.

    python docs/_generate/pages.py            writes
    python docs/_generate/pages.py --check    writes nothing; exit status 1 and their names where pages are stale

Detections come from the detectors' docstrings, constants and the notes beside this file; options from the programs'
tables; the overhead page from measurements in docs/data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[1]
ROOT: Final = DOCS.parent


def pages() -> dict[Path, str]:
    """Every generated page and what it should hold. Raises: ValueError, naming what somebody has to write."""
    import detection_pages
    import option_page
    import overhead_page

    found = {DOCS / "options.md": option_page.page(), DOCS / "overhead.md": overhead_page.page(DOCS / "data")}
    found |= {DOCS / name: text for name, text in detection_pages.pages(Path(__file__).with_name("notes")).items()}
    return found


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Pages that differ from what they should hold, and pages of detectors that are gone."""
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    return wrong + [path for path in sorted((DOCS / "detections").glob("*.md")) if path not in wanted]


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is stale")
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT / part) for part in ("agent", "detectors", "collector")]
    try:
        wanted = pages()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    wrong = stale(wanted)
    if arguments.check:
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is stale: run python docs/_generate/pages.py", file=sys.stderr)
        return 1 if wrong else 0
    for path in wrong:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
