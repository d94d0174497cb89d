"""The site builds strictly, and a browser that opens it asks nobody else for anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs.pages import DOCS, ROOT, pages

pytest.importorskip("material", reason="the site's theme is not installed (package mkdocs-material)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; links and navigation that lead nowhere fail the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The site on loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_page_is_in_the_site_and_nothing_else_is(site: Path) -> None:
    wanted = {p.relative_to(DOCS).with_suffix(".html").as_posix() for p in pages() if p.is_relative_to(DOCS)}
    built = {p.relative_to(site).as_posix() for p in site.rglob("*.html")} - {"404.html"}
    assert built == wanted
    assert not [p for p in site.rglob("*") if p.suffix in (".py", ".pyc")]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?(?:https?:)?//", re.I)
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s+)[\"']?(?:https?:)?//", sheet.read_text()), sheet


def test_a_browser_that_opens_the_site_asks_only_its_own_server(served: str, tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    log = tmp_path / "net.json"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={tmp_path}/profile", "--disable-component-update", "--disable-background-networking"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
    command += [f"--log-net-log={log}", "--dump-dom", f"{served}/detections.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "recoverable" in done.stdout, done.stderr[-2000:]
    text = log.read_text().rstrip().rstrip(",")
    events = json.loads(text if text.endswith("}") else text + "]}")["events"]
    asked = {e["params"]["url"] for e in events if "url" in e.get("params", {})}
    pages_asked = {url for url in asked if url.startswith("http")}
    assert any(url.startswith(served) for url in pages_asked)
    theirs = re.compile(r"https?://[\w.-]*(google|gvt1|googleapis|gstatic|chrome)[\w.-]*/")  # the browser's own
    assert {url for url in pages_asked if not url.startswith(served) and not theirs.match(url)} == set()
