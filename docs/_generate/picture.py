"""Take the picture of the page that README shows: the demo, opened in Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "pictures" / "page.png"
PORT = 18778
SETTLED_S = 15


def main() -> int:
    """Write docs/pictures/page.png. Errors: exit status 2 without Chromium on the path."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("Chromium was not found; on Debian and Ubuntu: apt-get install chromium", file=sys.stderr)
        return 2
    demo = subprocess.Popen(
        [Path(sys.executable).with_name("replaywatch"), "demo", "--port", str(PORT), "--seconds", "60"],
        stdout=subprocess.DEVNULL,
    )
    try:
        time.sleep(SETTLED_S)
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    browser,
                    "--headless=new",
                    "--no-sandbox",
                    "--hide-scrollbars",
                    f"--user-data-dir={profile}",
                    "--window-size=1280,1260",
                    f"--screenshot={PICTURE}",
                    f"http://127.0.0.1:{PORT}/",
                ],
                check=True,
                timeout=60,
                stderr=subprocess.DEVNULL,
            )
    finally:
        demo.terminate()
        demo.wait()
    print(PICTURE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
