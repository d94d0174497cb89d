"""Everybody can read the page: axe finds nothing, on every kind of page, in both themes and on a telephone."""

from __future__ import annotations

from typing import Any

import pytest

from page.browser import DESKTOP, PHONE, needs_chromium, opened
from replaywatch.collector.serve import CollectorHandle

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="package axe-playwright-python is missing")
pytestmark = needs_chromium
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
SIZES = {"desktop": DESKTOP, "telephone": PHONE}
# Light that people see who lack one kind of cones, as Chromium emulates it.
SIGHTS = ("protanopia", "deuteranopia", "tritanopia", "achromatopsia")


def addresses(handle: CollectorHandle) -> dict[str, str]:
    """One of every kind of page; workloads by their verdict."""
    found = {"fleet": "/", "nothing found": "/?q=nowhere", "incidents": "/incidents", "login": "/login"}
    found |= {f"workload, {v.word}": f"/workloads/{v.id}" for v in handle.collector.detection.view.workloads}
    return found | {"incident": "/incidents/1", "missing": "/workloads/none"}


@pytest.fixture(scope="module", params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(browser: Any, small: CollectorHandle, theme: str, size: str) -> None:
    with opened(browser, small.url, color_scheme=theme, viewport=SIZES[size]) as page:
        for name, path in addresses(small).items():
            if name != "missing":  # the browser itself says on its console that it is not there
                page.goto(small.url + path)
                found = axe.Axe().run(page, options=RULES).response["violations"]
                assert not found, (name, [(v["id"], v["impact"], v["nodes"][0]["html"][:200]) for v in found])


def test_axe_finds_what_is_wrong(browser: Any, small: CollectorHandle) -> None:
    """The check itself: a picture without words and grey on grey are told."""
    with opened(browser, small.url) as page:
        page.evaluate(
            "() => { const p = document.createElement('p'); p.textContent = 'faint'; p.style.color = '#ccc';"
            " document.querySelector('main').append(p, document.createElement('img')); }"
        )
        found = {v["id"] for v in axe.Axe().run(page, options=RULES).response["violations"]}
        assert {"image-alt", "color-contrast"} <= found


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1280, 1920])
def test_nothing_is_wider_than_the_window(browser: Any, small: CollectorHandle, width: int) -> None:
    with opened(browser, small.url, viewport={"width": width, "height": 800}) as page:
        for name, path in addresses(small).items():
            if name != "missing":
                page.goto(small.url + path)
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, name
                # Nor is a word cut off inside of something.
                cut = page.evaluate(
                    "() => [...document.querySelectorAll('main *')].filter((e) => e.scrollWidth > e.clientWidth + 1"
                    " && !['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.clientWidth > 0"
                    " && !e.closest('svg, .out, .scroll, thead') && getComputedStyle(e).display !== 'inline')"
                    ".map((e) => e.outerHTML.slice(0, 160))"
                )
                assert not cut, (name, cut)


def test_modes_and_verdicts_differ_without_colour(browser: Any, small: CollectorHandle) -> None:
    """Each verdict has a shape of its own and its word beside it; eager steps are hatched."""
    with opened(browser, small.url) as page:
        marks = page.locator(".tallies li")
        shapes = {marks.nth(n).locator("svg").inner_html() for n in range(marks.count())}
        assert len(shapes) == marks.count() == 5
        assert all(marks.nth(n).inner_text().split() for n in range(5))
        assert page.locator("rect.hatch").count() > 0


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_modes_are_told_apart_by_the_colour_blind(browser: Any, small: CollectorHandle, sight: str) -> None:
    with opened(browser, small.url) as page:
        page.context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": sight})
        image = page.screenshot(clip={"x": 0, "y": 0, "width": 1280, "height": 900})
        colours = page.evaluate(PIXELS, [list(image), [list(at) for at in middles(page)]])
        assert len(colours) == 2
        assert sum(abs(a - b) for a, b in zip(*colours, strict=True)) > 60, colours


def middles(page: Any) -> list[tuple[int, int]]:
    """Where a full bar and the legend of an eager one are."""
    boxes = [page.locator(s).first.bounding_box() for s in ("rect.full", "rect.eager")]
    return [(int(b["x"] + b["width"] / 2), int(b["y"] + b["height"] / 2)) for b in boxes]


PIXELS = """async ([bytes, places]) => {
  const picture = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
  const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d", { willReadFrequently: true });
  canvas.drawImage(picture, 0, 0);
  return places.map(([x, y]) => [...canvas.getImageData(x, y, 1, 1).data].slice(0, 3));
}"""
