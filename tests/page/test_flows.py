"""What people do on the page, done in a browser: find, narrow, step, share, watch, acknowledge, change the theme."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import web
from collector.material import SECOND, eager_window, fleet, workload
from collector.polling import until
from page.browser import needs_chromium, opened
from page.conftest import quiet, send
from replaywatch.collector.serve import CollectorHandle
from replaywatch.collector.tokens import create_token

pytestmark = needs_chromium


@pytest.fixture
def page(browser: Any, small: CollectorHandle) -> Iterator[Any]:
    """The fleet page."""
    with opened(browser, small.url) as it:
        yield it


def names(page: Any) -> list[str]:
    """Pods that are listed."""
    return [text.partition(" (")[0] for text in page.locator(".workloads .name").all_inner_texts()]


def path(page: Any) -> str:
    """The address behind the host."""
    return re.sub(r"^https?://[^/]+", "", page.url)


def test_a_workload_is_found_by_its_node(page: Any) -> None:
    assert len(names(page)) == 6
    page.get_by_label("Find a workload").fill("gpu-02 agents")
    page.get_by_role("button", name="Find").click()
    page.wait_for_url("**/?q=gpu-02+agents")
    assert names(page) == ["agents-66f9d-qq8wn"]
    assert "1 of 6" in page.locator("#workloads-title").inner_text()


def test_a_verdict_narrows_the_list_and_a_second_click_shows_all_again(page: Any) -> None:
    page.get_by_role("link", name="cannot see").click()
    assert path(page) == "/?verdict=blind"
    assert names(page) == ["audit-0"]
    page.get_by_role("link", name="cannot see").click()
    assert len(names(page)) == 6


def test_an_address_shows_others_the_same(page: Any, browser: Any) -> None:
    page.get_by_role("link", name="finding", exact=False).first.click()
    page.get_by_label("Find a workload").fill("search")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=search&verdict=finding")
    with opened(browser, page.url) as other:
        assert names(other) == names(page) == ["search-5c6b8-m4z7t"]


def test_a_range_of_time_is_part_of_the_address(page: Any) -> None:
    page.locator(".workloads").get_by_role("link", name="search-5c6b8-m4z7t").click()
    page.get_by_role("link", name="6 h").click()
    page.wait_for_url("**?range=6%20h")
    page.reload()
    assert page.locator(".ranges [aria-current=true]").inner_text() == "6 h"


def test_keys_alone_lead_from_the_fleet_to_an_incident_and_back(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.className") == "cover"
    assert page.evaluate("document.activeElement === document.querySelector('.cover')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/incidents/*")
    assert page.locator("h1").inner_text()
    page.go_back()
    page.keyboard.press("/")
    page.keyboard.type("audit")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=audit")
    assert names(page) == ["audit-0"]
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_every_stop_of_the_keyboard_shows_where_it_is(page: Any) -> None:
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "() => { const a = document.activeElement, s = getComputedStyle(a);"
            " return [a.tagName + (a.getAttribute('href') || a.id), a === document.body || s.outlineStyle !== 'none'] }"
        )
        assert here[1], here[0]
        seen.add(here[0])
    stops = page.locator("a[href], button:visible, input:visible").count()
    assert len(seen) >= stops * 0.8  # several links lead to one place


def ground(page: Any) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_the_theme_follows_the_system_until_one_is_chosen_and_then_stays(browser: Any, small: CollectorHandle) -> None:
    with opened(browser, small.url, color_scheme="dark") as page:
        dark = ground(page)
        page.get_by_role("button", name="Use the light theme").click()
        light = ground(page)
        assert light != dark
        page.get_by_role("link", name="Incidents", exact=True).click()
        assert ground(page) == light
        page.emulate_media(color_scheme="light")
        page.get_by_role("button", name="Use the dark theme").click()
        page.reload()
        assert ground(page) == dark
    with opened(browser, small.url, color_scheme="light") as page:
        assert ground(page) == light
        page.emulate_media(color_scheme="dark")
        assert ground(page) == dark


def test_what_happens_is_shown_without_a_reload(browser: Any, tmp_path: Path) -> None:
    handle = quiet(tmp_path)
    try:
        with opened(browser, handle.url) as page:
            page.evaluate("window.stays = true")
            assert "Nothing has been received yet" in page.locator("main").inner_text()
            for number in range(6):
                window = eager_window(time.time_ns() - (6 - number) * 5 * SECOND, random.Random(number), workload("a"))
                send(handle, [window], f"k{number}")
            page.wait_for_selector(".workloads .name", timeout=15_000)
            assert names(page) == ["a"]
            assert page.evaluate("window.stays") is True
            # A link that has the focus keeps it over an update; a field that is typed in is not taken away.
            page.keyboard.press("j")
            page.evaluate("document.querySelector('main').dataset.old = '1'")
            page.wait_for_selector("main:not([data-old])", timeout=15_000)
            assert page.evaluate("document.activeElement.className") == "cover"
    finally:
        handle.stop()


def test_a_collector_that_is_gone_is_said_to_be_gone(browser: Any, tmp_path: Path) -> None:
    handle = quiet(tmp_path)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(handle.url)
        handle.stop()
        page.wait_for_selector(".live.lost", timeout=15_000)
        assert "the collector does not answer" in page.locator("#live").inner_text()
    finally:
        context.close()
        handle.stop()


def test_a_person_logs_in_and_acknowledges_and_takes_it_back(browser: Any, tmp_path: Path) -> None:
    handle = quiet(tmp_path)
    try:
        now = time.time_ns()
        tokens = {scope: create_token(handle.collector.store, scope, (scope,), now) for scope in ("ingest", "read")}
        mine = create_token(handle.collector.store, "anna", ("read", "write"), now)
        handle.collector.loops["tokens"].wake()
        until(lambda: web.get(f"{handle.url}/v1/workloads").status_code == 401)
        for number, windows in enumerate(fleet(now, 1)):
            send(handle, windows, f"k{number}", {"Authorization": f"Bearer {tokens['ingest']}"})
        with opened(browser, f"{handle.url}/incidents/1") as page:
            assert page.get_by_role("heading", name="Log in").is_visible()
            page.get_by_label("Token with the scope").fill(mine)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/incidents/1")
            page.get_by_role("button", name="Acknowledge", exact=True).click()
            page.wait_for_selector("text=Acknowledged by anna")
            assert "acknowledged" in page.locator(".history").inner_text()
            page.get_by_role("button", name="Take the acknowledgement back").click()
            page.wait_for_selector("button:text-is('Acknowledge')")
        with opened(browser, f"{handle.url}/incidents/1") as page:
            page.get_by_label("Token with the scope").fill(tokens["read"])
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/incidents/1")
            assert page.locator("h1").inner_text() != "Log in"
            assert page.get_by_role("button", name="Acknowledge").count() == 0
    finally:
        handle.stop()
