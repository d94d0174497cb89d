from __future__ import annotations

import random
import re
import time
from html.parser import HTMLParser

import pytest

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, eager_window, workload
from collector.test_metrics import feed
from replaywatch.collector import wording
from replaywatch.collector.charts import step_time_chart
from replaywatch.collector.series import Point
from replaywatch.collector.trail import POINTS_MAX, Trail

VOID = {"meta", "link", "input", "br", "img", "circle", "line", "rect", "path", "polyline", "polygon"}


class Checker(HTMLParser):
    """Fails on tags that do not nest, and keeps what the page loads and links to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [name for name, _ in attrs]
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def checked(url: str, status: int = 200) -> tuple[str, Checker]:
    answer = web.get(url)
    assert answer.status_code == status, answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    checker = Checker()
    checker.feed(answer.text)
    assert checker.open == []
    # The content policy forbids both: they would silently not work.
    assert not {"style", "onclick", "onload"} & set(checker.attributes)
    return answer.text, checker


def text_of(page: str) -> str:
    plain = re.sub(r"<[^>]+>", " ", page).replace("\N{NO-BREAK SPACE}", " ")
    return " ".join(plain.split())


def test_every_page_and_everything_it_links_to_answers(start: Start) -> None:
    handle = start()
    feed(handle)
    seen: set[str] = set()
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        if path in seen or path.startswith("#"):
            continue
        seen.add(path)
        assert path.startswith(("/", "?")), path
        answer = web.get(handle.url + (path if path.startswith("/") else "/" + path))
        # The feed stops the ticking by itself, which readiness rightly tells.
        assert answer.status_code == 200 or path == "/readyz", path
        if answer.headers["Content-Type"].startswith("text/html") and path.startswith("/"):
            waiting += checked(handle.url + path)[1].links
    assert sum(p.startswith("/workloads/") for p in seen) == 6
    assert sum(p.startswith("/incidents/") for p in seen) >= 2


def test_the_fleet_page_tells_what_is_lost_and_why(start: Start) -> None:
    handle = start()
    feed(handle)
    text = text_of(checked(handle.url)[0])
    loss = handle.collector.detection.view.loss
    assert loss.gpus > 0.7
    assert f"{loss.gpus:.2f} of {loss.devices} GPUs lost" in text
    assert "graphs are switched off by --enforce-eager" in text
    assert "cannot see" in text
    assert "eager 100 %" in text


def test_an_empty_fleet_says_so(start: Start) -> None:
    assert "Nothing has been received yet" in checked(start().url)[0]


def test_a_silent_workload_is_never_shown_as_healthy(start: Start) -> None:
    handle = start(stale_seconds=0.05)
    handle.collector.loops["detection"].stop()
    feed(handle)
    time.sleep(0.1)
    handle.collector.detection.tick()
    text = text_of(checked(handle.url)[0])
    assert "6 silent" in text
    assert "0 healthy" in text
    assert handle.collector.detection.view.loss.gpus == 0
    assert "6 workloads are not judged and not counted" in text


def test_names_from_outside_are_escaped(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    who = workload(evil, model_name=evil, node=evil)
    for i in range(3):
        window = eager_window(time.time_ns() - 6 * SECOND, random.Random(i), who)
        web.post(f"{handle.url}/v1/batches", content=body([window], f"k{i}"), headers=HEADERS)
        handle.collector.detection.tick()
    (view,) = handle.collector.detection.view.workloads
    for path in ("/", f"/workloads/{view.id}", "/incidents", "/incidents/1", "/?q=%3Cscript%3E%22"):
        page, _ = checked(handle.url + path)
        assert "<script>alert" not in page
        assert "<img" not in page


def test_the_fleet_page_can_be_searched_and_narrowed(start: Start) -> None:
    handle = start()
    feed(handle)
    assert "chat-7d9f4" not in checked(handle.url + "/?q=gpu-02+agents")[0]
    assert "agents-66f9d-qq8wn" in checked(handle.url + "/?q=gpu-02+agents")[0]
    assert "No workload matches" in checked(handle.url + "/?q=nowhere")[0]
    blind = checked(handle.url + "/?verdict=blind")[0]
    assert "audit-0" in blind
    assert 'href="/workloads/' in blind
    assert "1 of 6" in text_of(blind)


@pytest.mark.parametrize(
    "path", ["/workloads/none", "/incidents/99", "/incidents/x", "/incidents/9999999999999999999999"]
)
def test_what_is_not_there_is_404(start: Start, path: str) -> None:
    assert "There is no such" in checked(start().url + path, 404)[0]


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/nothing"]
)
def test_static_files_do_not_reach_out_of_their_folder(start: Start, path: str) -> None:
    assert web.get(start().url + path).status_code == 404


def test_numbers_read_well() -> None:
    gap = "\N{NO-BREAK SPACE}"
    assert [wording.percent(v) for v in (None, 0, 0.014, 0.5, 0.996, 1)] == [
        "–",
        f"0{gap}%",
        f"1.4{gap}%",
        f"50{gap}%",
        f"99.6{gap}%",
        f"100{gap}%",
    ]
    assert [wording.duration_us(v) for v in (None, 12, 3300, 2e6)] == ["–", f"12{gap}µs", f"3.30{gap}ms", f"2.00{gap}s"]
    assert wording.size_bytes(268435456) == f"256.0{gap}MiB"
    assert wording.span(3_700 * SECOND) == "1 h 1 min"
    assert wording.evidence_value(0.25, "ratio") == f"25{gap}%"
    assert wording.evidence_value("NONE", "") == "NONE"


def test_no_line_ends_inside_a_figure_or_an_option() -> None:
    gap = "\N{NO-BREAK SPACE}"
    assert wording.prose("busy 6.0 % of 14 ms, 12 sequences") == f"busy 6.0{gap}% of 14{gap}ms, 12 sequences"
    assert wording.prose("give --a-b 48 (-cc.mode=...), a-b -- 5") == (
        'give <span class="option"><code>--a-b</code></span> 48 '
        '<span class="option">(<code>-cc.mode=...</code></span>), a-b -- 5'
    )
    assert wording.prose("<x> & 'y'") == "&lt;x&gt; &amp; &#39;y&#39;"


def test_a_line_goes_on_over_slices_that_measured_nothing_and_ends_where_there_were_none_for_long() -> None:
    def slice_(second: int, step_ns: float | None) -> Point:
        start = second * SECOND
        timed = None if step_ns is None else 1.0
        return Point(start, start + SECOND, 1, 1.0, 0.0, 0.0, timed, step_ns, None, None, None, None, None, None)

    near = [slice_(n, 1e6 if n % 3 == 0 else None) for n in range(30)]
    far = [slice_(n, 1e6) for n in (0, 60, 120)]
    assert str(step_time_chart(near).plot).count("<polyline") == 1
    assert str(step_time_chart(far).plot).count("<polyline") == 3


def test_a_trail_keeps_its_length_and_its_mean() -> None:
    trail = Trail()
    for i in range(5000):
        trail.add(i * 5 * SECOND, i % 2)
    points = trail.points()
    assert len(points) <= POINTS_MAX
    assert all(share == 0.5 for _, share in points[:-1])
    assert points[-1][0] - points[0][0] <= 3 * 3600 * SECOND
