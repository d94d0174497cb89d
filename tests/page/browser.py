"""A real headless Chromium, and a check that nothing was loaded from elsewhere or complained about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="package playwright is missing")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)")
DESKTOP = {"width": 1280, "height": 900}
# The narrowest telephone that is sold much, in CSS pixels.
PHONE = {"width": 390, "height": 844}


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. Playwright brings the driver only; the browser is the system's."""
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, url: str, **settings: Any) -> Iterator[Any]:
    """A page of a browser without a history. Raises: AssertionError at the end for console messages and strangers."""
    context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **settings})
    page = context.new_page()
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    own = "/".join(url.split("/")[:3])
    page.on("request", lambda request: complaints.extend([] if request.url.startswith(own) else [request.url]))
    try:
        page.goto(url)
        yield page
        assert not complaints, complaints
    finally:
        context.close()
