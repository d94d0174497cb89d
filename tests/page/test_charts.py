"""Charts over time: values to point at, a closer look, incidents on them, both themes; SVG without a script."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.material import fleet
from page.browser import needs_chromium, opened
from page.conftest import quiet, send
from replaywatch.collector.serve import CollectorHandle

pytestmark = needs_chromium
ROOT = Path(__file__).parents[2]
OURS = ROOT / "collector" / "replaywatch" / "collector" / "static" / "uplot"
THEIRS = ROOT / "build" / "grafana-schema" / "node_modules" / "uplot"
PAINTED = """(index) => {
  const canvas = document.querySelectorAll(".uplot canvas")[index];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const seen = {};
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] === 255) {
      const colour = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
      seen[colour] = (seen[colour] || 0) + 1;
    }
  }
  return seen;
}"""


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorHandle]:
    """Eight minutes of a fleet; its last windows end after the incidents opened, so that these lie on the charts."""
    handle = quiet(tmp_path_factory.mktemp("charts"))
    now = time.time_ns()
    for number, windows in enumerate(fleet(now + 120 * 10**9, 8)):
        send(handle, windows, f"k{number}")
    yield handle
    handle.stop()


def address(handle: CollectorHandle, pod: str = "agents") -> str:
    (found,) = [v.id for v in handle.collector.detection.view.workloads if (v.workload.pod or "").startswith(pod)]
    return f"{handle.url}/workloads/{found}"


@pytest.fixture
def page(browser: Any, overflowing: CollectorHandle) -> Iterator[Any]:
    with opened(browser, address(overflowing), color_scheme="light") as it:
        it.wait_for_selector(".uplot")
        yield it


def point(page: Any, share: float, *, chart: int = 0) -> None:
    """Put the pointer at a share of a chart's width, and wait until that is shown."""
    over = page.locator(".uplot .u-over").nth(chart)
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def legends(page: Any) -> list[dict[str, str]]:
    """What each chart says of the place that is pointed at, by the names of its lines."""
    found = []
    for legend in page.locator(".uplot .u-legend").all():
        names, values = (legend.locator(part).all_inner_texts() for part in (".u-label", ".u-value"))
        found.append(dict(zip(names, (v.replace("\N{NO-BREAK SPACE}", " ") for v in values), strict=True)))
    return found


def of_figures(page: Any) -> list[Any]:
    return [json.loads(f.get_attribute("data-series")) for f in page.locator("figure[data-series]").all()]


def test_every_chart_says_what_was_at_the_time_that_is_pointed_at(page: Any) -> None:
    for share in (0.1, 0.5, 0.9):
        point(page, share)
        told = legends(page)
        assert len(told) == page.locator("figure[data-series]").count() >= 3
        assert len({one["UTC"] for one in told}) == 1
        for figure, one in zip(of_figures(page), told, strict=True):
            times = [time.strftime("%H:%M:%S", time.gmtime(x)) for x in figure["x"]]
            at = times.index(one["UTC"])
            for name, ys in zip(figure["names"], figure["ys"], strict=True):
                number, unit = one[name].split()
                want = ys[at] * 100 if figure["unit"] == "share" else ys[at] / 1000
                assert unit == ("%" if figure["unit"] == "share" else "ms")
                assert float(number) == pytest.approx(want, abs=0.51 if unit == "%" else 0.006)


def test_a_part_can_be_looked_at_closely_in_peace_and_left_again(page: Any) -> None:
    whole = of_figures(page)[0]
    point(page, 0.5)
    box = page.locator(".uplot .u-over").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    page.mouse.up()
    page.wait_for_selector("main[data-zoomed]")
    point(page, 0.02)
    first = legends(page)[0]["UTC"]
    point(page, 0.98)
    last = legends(page)[0]["UTC"]
    seconds = [time.mktime(time.strptime(f"2026-01-01 {t}", "%Y-%m-%d %H:%M:%S")) for t in (first, last)]
    assert 0 < (seconds[1] - seconds[0]) % 86400 < 0.3 * (whole["to"] - whole["from"])
    page.mouse.move(1, 1)
    page.evaluate("document.querySelector('main').dataset.old = '1'")
    page.wait_for_timeout(6000)
    assert page.locator("main[data-old]").count() == 1
    page.mouse.dblclick(box["x"] + box["width"] / 2, y)
    page.wait_for_selector("main:not([data-zoomed])")
    page.mouse.move(1, 1)
    page.wait_for_selector("main:not([data-old])")
    assert page.locator(".uplot").count() >= 3


def colour(page: Any, css: str) -> str:
    found: str = page.evaluate(f"getComputedStyle(document.querySelector('svg.defs rect.{css}')).fill")
    return found


def test_incidents_and_modes_are_painted_in_their_colours(page: Any) -> None:
    assert page.evaluate("JSON.parse(document.querySelector('.charts').dataset.marks).length") > 0
    for index, css in ((0, "page"), (1, "full"), (1, "eager"), (1, "page"), (2, "good")):
        assert page.evaluate(PAINTED, index).get(colour(page, css), 0) > 50, (index, css)


def test_what_is_painted_follows_the_theme(page: Any) -> None:
    light = colour(page, "full")
    page.get_by_role("button", name="Use the dark theme").click()
    dark = colour(page, "full")
    assert dark != light
    painted = page.evaluate(PAINTED, 1)
    assert painted.get(dark, 0) > 1000
    assert light not in painted


def test_charts_fit_the_window_when_it_changes(page: Any) -> None:
    for width in (1280, 390, 900):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "() => [...document.querySelectorAll('figure[data-series]')].every((f) => { const w ="
            " f.querySelector('.uplot').getBoundingClientRect().width; return w <= f.clientWidth && w > 200 })"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_charts_are_there(browser: Any, overflowing: CollectorHandle) -> None:
    with opened(browser, address(overflowing), java_script_enabled=False) as page:
        assert page.locator("figure .frame svg").count() >= 4
        assert page.locator("figure .frame svg").first.is_visible()
        assert page.locator(".uplot").count() == 0


@pytest.mark.skipif(not THEIRS.is_dir(), reason="the npm package uplot is not in build/grafana-schema")
@pytest.mark.parametrize("name", ["uPlot.iife.min.js", "uPlot.min.css"])
def test_the_library_is_the_published_one(name: str) -> None:
    assert (OURS / name).read_bytes() == (THEIRS / "dist" / name).read_bytes()
    assert (OURS / "LICENSE").read_bytes() == (THEIRS / "LICENSE").read_bytes()
