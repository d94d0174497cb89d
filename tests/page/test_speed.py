"""A thousand workloads are there within a second, for somebody who opens the page for the first time."""

from __future__ import annotations

from typing import Any

from page.browser import needs_chromium, opened
from replaywatch.collector.serve import CollectorHandle

pytestmark = needs_chromium
FIRST_VIEW = """() => {
  const [way] = performance.getEntriesByType("navigation");
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  return { loaded: way.loadEventEnd, painted: paint ? paint.startTime : null, bytes: way.decodedBodySize };
}"""


def test_the_first_view_of_a_thousand_workloads_takes_less_than_a_second(
    browser: Any, thousand: CollectorHandle
) -> None:
    """The best of three browsers without a cache: a shared machine may be slow once, a slow page always is."""
    seen = []
    for _ in range(3):
        with opened(browser, thousand.url) as page:
            assert "1000" in page.locator("#workloads-title").inner_text()
            page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
            seen.append(page.evaluate(FIRST_VIEW))
    print(seen)
    assert min(one["loaded"] for one in seen) < 1000, seen
    assert min(one["painted"] for one in seen) < 1000, seen


def test_a_search_over_a_thousand_workloads_is_as_quick(browser: Any, thousand: CollectorHandle) -> None:
    with opened(browser, f"{thousand.url}/?q=gpu-077") as page:
        assert page.locator(".workloads .name").count() == 8
        assert page.evaluate(FIRST_VIEW)["loaded"] < 1000


def test_rows_beyond_the_first_are_one_link_away(browser: Any, thousand: CollectorHandle) -> None:
    with opened(browser, thousand.url) as page:
        first = page.locator(".workloads .name").all_inner_texts()
        page.get_by_role("link", name="More workloads").click()
        page.wait_for_url("**/?offset=200")
        assert not set(first) & set(page.locator(".workloads .name").all_inner_texts())
