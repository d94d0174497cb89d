"""Take the pictures of the page that README and the documentation show: the demo, opened in Chromium.

    python docs/_generate/picture.py

Writes docs/pictures/*.png. What is on them was recorded on a GPU; times of day are those of the taking.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

PICTURES: Final = Path(__file__).parents[1] / "pictures"
# Long enough for verdicts, incidents and something to see in charts.
SETTLED_MS: Final = 25_000
# Name, how to get there from the fleet page (texts of links), theme, size of the window.
TAKEN: Final = (
    ("page", (), "light", (1280, 1180)),
    ("workload", (".workloads .name >> nth=0",), "light", (1280, 1500)),
    ("incident", (".cover >> nth=0",), "light", (1280, 900)),
    ("dark", (), "dark", (1280, 900)),
    ("telephone", (), "light", (390, 844)),
)


@contextmanager
def demo() -> Iterator[str]:
    """The address of a running demo."""
    command = [sys.executable, "-m", "replaywatch.cli.main", "demo", "--port", "0", "--seconds", "120"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found = [word.rstrip(".,;/)") for word in line.split() if word.lstrip("(").startswith("http://")]
            if found:
                yield found[0].lstrip("(")
                return
        raise RuntimeError("the demo ended without an address")
    finally:
        process.terminate()
        process.wait()


def take(browser: Any, url: str) -> None:
    """All pictures."""
    for name, way, theme, (width, height) in TAKEN:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
        page.goto(url)
        for link in way:
            page.locator(link).click()
            page.wait_for_load_state()
        file = PICTURES / f"{name}.png"
        page.screenshot(path=file)
        page.close()
        print(file)


def main() -> int:
    """Write the pictures. Errors: exit status 2 without Chromium on the path."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        print("Chromium was not found; on Debian and Ubuntu: apt-get install chromium", file=sys.stderr)
        return 2
    with demo() as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        page.wait_for_timeout(SETTLED_MS)
        take(browser, url)
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
