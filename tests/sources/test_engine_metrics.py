from __future__ import annotations

import gzip
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from replaywatch.contract.errors import ConfigurationError, SourceError, UnknownSource, UnreadableSource
from replaywatch.contract.window import FALLBACK_REASONS
from replaywatch.sources.engine_metrics import MetricsScraper, difference, parse, read_metrics, scrape
from replaywatch.sources.engine_metrics.buckets import rescaled, to_histogram

NOW_NS = 1_795_975_200_000_000_000
VLLM = """\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7959752e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="acme/llama-1b"} 48.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.9"} 1.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_sum{engine="0",model_name="acme/llama-1b"} 4800.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="acme/llama-1b"} 0.0
vllm:iteration_tokens_total_bucket{engine="0",le="64.0",model_name="acme/llama-1b"} 100.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="acme/llama-1b"} 100.0
vllm:iteration_tokens_total_count{engine="0",model_name="acme/llama-1b"} 100.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_sum{engine="0",model_name="acme/llama-1b"} 72.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="acme/llama-1b"} 0.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.025",model_name="acme/llama-1b"} 4800.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="acme/llama-1b"} 4800.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="acme/llama-1b"} 4800.0
"""
COUNTED = """\
# TYPE vllm:cudagraph_iterations_total counter
vllm:cudagraph_iterations_total{engine="0",model_name="acme/llama-1b",runtime_mode="FULL"} 90.0
vllm:cudagraph_iterations_total{engine="0",model_name="acme/llama-1b",runtime_mode="NONE"} 10.0
"""
SGLANG = """\
# TYPE sglang:is_cuda_graph gauge
sglang:is_cuda_graph{model_name="acme/8b",tp_rank="0",dp_rank="0"} 0.0
# TYPE sglang:cuda_graph_passes_total counter
sglang:cuda_graph_passes_total{mode="decode_cuda_graph",model_name="acme/8b",tp_rank="0",dp_rank="0"} 400.0
sglang:cuda_graph_passes_total{mode="decode_none",model_name="acme/8b",tp_rank="0",dp_rank="0"} 100.0
sglang:cuda_graph_passes_total{mode="prefill_cuda_graph",model_name="acme/8b",tp_rank="0",dp_rank="0"} 7.0
sglang:cuda_graph_passes_total{mode="prefill_none",model_name="acme/8b",tp_rank="0",dp_rank="0"} 3.0
sglang:cuda_graph_passes_total{mode="decode_cuda_graph",model_name="acme/8b",tp_rank="1",dp_rank="0"} 400.0
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="acme/8b",tp_rank="0",dp_rank="0"} 6.0
sglang:startup_cuda_graph_time_seconds{model_name="acme/8b",phase="decode"} 12.5
sglang:inter_token_latency_seconds_bucket{model_name="acme/8b",le="0.02"} 0
sglang:inter_token_latency_seconds_bucket{model_name="acme/8b",le="0.04"} 1000
sglang:inter_token_latency_seconds_bucket{model_name="acme/8b",le="+Inf"} 1000
sglang:inter_token_latency_seconds_sum{model_name="acme/8b"} 30.0
sglang:inter_token_latency_seconds_count{model_name="acme/8b"} 1000
"""


def test_vllm_page_gives_tokens_step_times_and_says_what_it_cannot_see() -> None:
    recording = read_metrics(VLLM, "http://pod/metrics", NOW_NS)
    (window,) = recording.windows
    assert (window.workload.engine, window.workload.model_name) == ("vllm", "acme/llama-1b")
    assert window.dispatch.steps is None
    assert window.dispatch.real_tokens == 4800
    assert window.dispatch.batch_sizes == {48: 1}
    assert window.timing.step_period is not None
    assert window.timing.step_period.count == 100
    assert window.timing.step_period.mean == pytest.approx(15e6)
    assert {b.signal for b in window.blind} == {"dispatch", "step_period"}
    assert recording.configs[window.config_id or ""].settings["gpu_memory_utilization"] == "0.9"


def test_page_by_itself_covers_the_life_of_its_process() -> None:
    (window,) = read_metrics(VLLM, "m", NOW_NS + 5_000_000_000).windows
    assert (window.start_ns, window.end_ns) == (NOW_NS, NOW_NS + 5_000_000_000)


def test_vllm_iterations_by_mode_are_steps_where_a_build_counts_them() -> None:
    (window,) = read_metrics(VLLM + COUNTED, "m", NOW_NS).windows
    assert window.dispatch.steps == {"full": 90, "eager": 10}
    assert window.dispatch.fallbacks == {"other": 10}
    assert "dispatch" not in {b.signal for b in window.blind}


def test_vllm_replicas_are_workloads_of_their_own() -> None:
    recording = read_metrics(VLLM + VLLM.replace('engine="0"', 'engine="1"'), "m", NOW_NS)
    assert [w.workload.rank for w in recording.windows] == [0, 1]


@pytest.mark.parametrize("prefix", ["sglang:", "sglang_"])
def test_sglang_passes_are_steps_by_phase_and_ranks_count_once(prefix: str) -> None:
    decode, prefill = read_metrics(SGLANG.replace("sglang:", prefix), "m", NOW_NS).windows
    assert (decode.workload.phase, prefill.workload.phase) == ("decode", "prefill")
    assert decode.dispatch.steps == {"full": 400, "eager": 100}
    assert prefill.dispatch.steps == {"piecewise": 7, "eager": 3}
    assert prefill.dispatch.fallbacks == {"prefill_by_design": 3}
    assert decode.timing.step_period is not None
    assert decode.timing.step_period.count == 500
    assert decode.timing.step_period.mean == pytest.approx(30e6)
    assert decode.timing.capture is not None
    assert decode.timing.capture.sum == 12_500_000_000


def test_sglang_gauge_of_graph_use_is_never_believed() -> None:
    off, on = (
        read_metrics(SGLANG, "m", NOW_NS),
        read_metrics(SGLANG.replace('dp_rank="0"} 0.0', 'dp_rank="0"} 1.0'), "m", NOW_NS),
    )
    assert off == on


def test_window_between_two_pages_is_what_changed() -> None:
    scraper = MetricsScraper("m")
    assert scraper.add(SGLANG, NOW_NS) is None
    later = SGLANG.replace("} 400.0", "} 900.0").replace("} 100.0", "} 110.0")
    recording = scraper.add(later, NOW_NS + 10_000_000_000)
    assert recording is not None
    decode = recording.windows[0]
    assert decode.dispatch.steps == {"full": 500, "eager": 10}
    assert (decode.start_ns, decode.end_ns) == (NOW_NS, NOW_NS + 10_000_000_000)
    assert {w.workload.phase for w in recording.windows} == {"decode"}


def test_restarted_process_counts_from_its_own_start() -> None:
    scraper = MetricsScraper("m")
    scraper.add(SGLANG, NOW_NS)
    recording = scraper.add(SGLANG.replace("} 400.0", "} 50.0").replace("} 100.0", "} 200.0"), NOW_NS + 1)
    assert recording is not None
    assert recording.windows[0].dispatch.steps == {"full": 50, "eager": 200}


def test_a_replica_that_starts_anew_does_not_count_the_others_again() -> None:
    scraper = MetricsScraper("m")
    before = SGLANG + SGLANG.replace('dp_rank="0"', 'dp_rank="1"')
    scraper.add(before.replace("} 400.0", "} 1000000.0"), NOW_NS)
    grown = SGLANG.replace("} 400.0", "} 1000100.0") + SGLANG.replace('dp_rank="0"', 'dp_rank="1"')
    recording = scraper.add(grown, NOW_NS + 1)
    assert recording is not None
    steps = {w.workload.rank: w.dispatch.steps for w in recording.windows if w.workload.phase == "decode"}
    assert steps == {0: {"full": 100}, 1: {"full": 400, "eager": 100}}


def test_restart_with_larger_counters_is_seen_by_its_start_time() -> None:
    before, after = parse(VLLM + COUNTED, "m"), parse((VLLM + COUNTED).replace("1.7959752e+09", "1.7959753e+09"), "m")
    assert {s.value for s in difference(before, after).named("vllm:cudagraph_iterations_total")} == {90.0, 10.0}
    assert {s.value for s in difference(before, before).named("vllm:cudagraph_iterations_total")} == {0.0}


def test_page_that_cannot_be_read_keeps_the_one_before() -> None:
    scraper = MetricsScraper("m")
    scraper.add(SGLANG, NOW_NS)
    with pytest.raises(UnreadableSource):
        scraper.add("<html>", NOW_NS + 1)
    with pytest.raises(UnknownSource):
        scraper.add("up 1\n", NOW_NS + 2)
    recording = scraper.add(SGLANG.replace("} 400.0", "} 401.0"), NOW_NS + 3)
    assert recording is not None
    assert recording.windows[0].dispatch.steps == {"full": 1}


def test_trtllm_page_has_step_times_and_no_graphs() -> None:
    page = (
        'trtllm_time_per_output_token_seconds_bucket{model_name="m",le="0.01"} 5\n'
        'trtllm_time_per_output_token_seconds_bucket{model_name="m",le="+Inf"} 5\n'
        'trtllm_time_per_output_token_seconds_sum{model_name="m"} 0.04\n'
    )
    (window,) = read_metrics(page, "m", NOW_NS).windows
    assert window.timing.step_period is not None
    assert window.timing.step_period.sum == 40_000_000
    assert window.blind[0].signal == "dispatch"


def test_foreign_page_is_refused_with_a_sentence() -> None:
    with pytest.raises(UnknownSource, match="no metrics of vLLM, SGLang"):
        read_metrics("# TYPE up gauge\nup 1\n", "http://x/metrics")
    with pytest.raises(UnreadableSource, match="line 1 is not a metric"):
        read_metrics("<!doctype html>", "http://x/metrics")


LABEL = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8) | st.sampled_from(
    ['a"b', "a\\b", "a\nb", "a,b", "a}b", "{", "#", "\\n", 'x" ']
)


@settings(deadline=None)
@given(st.dictionaries(LABEL, st.floats(0, 1e12) | st.sampled_from([math.inf]), min_size=1, max_size=6))
def test_parser_agrees_with_the_official_one(values: dict[str, float]) -> None:
    registry = CollectorRegistry()
    counter = Counter("engine:steps_total", "Steps, with a \\ and a\nbreak", ["mode"], registry=registry)
    gauge = Gauge("engine_running", "Running", registry=registry)
    histogram = Histogram("engine:gap_seconds", "Gaps", ["mode"], registry=registry, buckets=(0.1, 1, 10))
    for label, value in values.items():
        counter.labels(label).inc(value)
        gauge.set(value)
        histogram.labels(label).observe(value)
    text = generate_latest(registry).decode()
    theirs = [
        (s.name, tuple(sorted(s.labels.items())), s.value)
        for family in text_string_to_metric_families(text)
        for s in family.samples
    ]
    assert sorted((s.name, s.labels, s.value) for s in parse(text, "m").samples) == sorted(theirs)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=300),
        st.text(alphabet='vllm:sgan_{}="\\,0123456789.+-eE \n#NaInf', max_size=200),
        st.lists(st.sampled_from((VLLM + COUNTED + SGLANG).splitlines()), max_size=12).map("\n".join),
    ),
    st.text(max_size=3),
    st.floats(0, 1),
)
def test_any_text_gives_a_recording_or_a_named_error(page: str, noise: str, where: float) -> None:
    at = int(where * len(page))
    text = page[:at] + noise + page[at:]
    try:
        recording = read_metrics(text, "source", NOW_NS)
    except SourceError as error:
        assert "source" in str(error)
        assert "\n" not in str(error)
    else:
        for window in recording.windows:
            assert window.end_ns > window.start_ns
            assert set(window.dispatch.fallbacks or ()) <= set(FALLBACK_REASONS)


@pytest.mark.parametrize("odd", ["²", "NaN", "٣", "9" * 5000, "-Inf", "1e999", ""])
@pytest.mark.parametrize("label", ['le="0.025"', 'engine="0"', 'dp_rank="0"'])
def test_odd_values_of_labels_are_no_error(label: str, odd: str) -> None:
    several = VLLM + SGLANG + VLLM.replace('engine="0"', 'engine="1"') + SGLANG.replace('dp_rank="0"', 'dp_rank="1"')
    page = several.replace(label, f'{label.partition("=")[0]}="{odd}"')
    assert read_metrics(page, "m", NOW_NS).windows


@settings(deadline=None)
@given(st.lists(st.floats(0.0005, 20), min_size=1, max_size=60))
def test_converted_histogram_is_as_wrong_as_it_says(gaps_s: list[float]) -> None:
    registry = CollectorRegistry()
    edges = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.5, 2, 30)
    family = Histogram("vllm:gap_seconds", "g", registry=registry, buckets=edges)
    for gap in gaps_s:
        family.observe(gap)
    converted = to_histogram(parse(generate_latest(registry).decode(), "m").samples, "vllm:gap_seconds", 1e9)
    assert converted is not None
    histogram, error = converted
    assert histogram.count == len(gaps_s)
    assert histogram.sum == pytest.approx(sum(gaps_s) * 1e9, rel=1e-6)
    middle = sorted(gaps_s)[(len(gaps_s) - 1) // 2] * 1e9
    found = histogram.quantile((((len(gaps_s) - 1) // 2) + 0.5) / len(gaps_s))
    assert found is not None
    assert middle / error / 1.1 <= found <= middle * error * 1.1


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(1, 40))
def test_rescaling_keeps_shape_and_mean(values: list[int], count: int) -> None:
    from replaywatch.contract.histogram import Histogram as Ours

    before = Ours.of(values)
    after = rescaled(before, count)
    assert after.count == count == sum(after.buckets.values())
    assert after.mean == pytest.approx(before.mean, rel=0.5 / min(values) + 1e-9)
    assert set(after.buckets) <= set(before.buckets)


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(VLLM.encode())
        elif self.path == "/moved":
            self._send(b"", 302, Location="/metrics")
        elif self.path == "/gzip":
            self._send(gzip.compress(VLLM.encode()), Content_Encoding="gzip")
        elif self.path == "/half-gzip":
            self._send(gzip.compress(VLLM.encode())[:-20], Content_Encoding="gzip")
        elif self.path == "/no-gzip":
            self._send(VLLM.encode(), Content_Encoding="gzip")
        elif self.path == "/brotli":
            self._send(b"...", Content_Encoding="br")
        elif self.path == "/short":
            self._send(VLLM.encode(), Content_Length="9999")
        elif self.path == "/short-chunk":
            self._send(b"40\r\n" + VLLM.encode()[:20], Transfer_Encoding="chunked")
        elif self.path == "/no-last-chunk":
            self._send(b"14\r\n" + VLLM.encode()[:20] + b"\r\n", Transfer_Encoding="chunked")
        elif self.path == "/token":
            self._send(VLLM.encode(), 200 if self.headers["Authorization"] == "Bearer t" else 401)
        elif self.path.startswith("/drip"):
            self._drip()
        else:
            self._send(b"", 404)

    def _send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        """A byte now and then for a long time: of the head, or of a body without a length."""
        if self.path == "/drip-body":
            self.send_response(200)
            self.end_headers()
        with suppress(OSError):
            for byte in VLLM if self.path == "/drip-body" else "HTTP/1.0 200 OK\r\nX: " + "x" * 900:
                self.wfile.write(byte.encode())
                time.sleep(0.01)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_scraping_reads_a_page(address: str) -> None:
    assert read_metrics(scrape(f"{address}/metrics", 5.0), address).windows


def test_scraping_refuses_what_is_no_page(address: str) -> None:
    with pytest.raises(UnreadableSource, match="404"):
        scrape(f"{address}/", 5.0)
    with pytest.raises(UnreadableSource, match="302"):
        scrape(f"{address}/moved", 5.0)
    with pytest.raises(UnreadableSource, match="more than 10 bytes"):
        scrape(f"{address}/metrics", 5.0, max_bytes=10)
    with pytest.raises(UnreadableSource, match="cannot be read"):
        scrape("http://127.0.0.1:9/metrics", 1.0)


def test_a_page_that_drips_is_given_up_in_time(address: str) -> None:
    for path in ("drip-head", "drip-body"):
        begun_s = time.monotonic()
        with pytest.raises(UnreadableSource, match=r"longer than 0\.3 s"):
            scrape(f"{address}/{path}", 0.3)
        assert time.monotonic() - begun_s < 3


def test_time_to_connect_is_not_taken_from_the_page(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.create_connection

    def slowly(*args: Any, **options: Any) -> socket.socket:
        time.sleep(0.6)  # as where the first of two addresses does not answer
        return connect(*args, **options)

    monkeypatch.setattr(socket, "create_connection", slowly)
    assert scrape(f"{address}/metrics", 0.5) == VLLM


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://[::1]/metrics", ("::1", 80)),
        ("https://[::1]/metrics", ("::1", 443)),
        ("http://[::1]:8000/metrics", ("::1", 8000)),
        ("http://engine/metrics", ("engine", 80)),
    ],
)
def test_an_address_without_a_port_has_its_schemes(
    monkeypatch: pytest.MonkeyPatch, url: str, endpoint: tuple[str, int]
) -> None:
    tried: list[object] = []

    def refuse(address: object, *_: object) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(UnreadableSource):
        scrape(url, 1.0)
    assert tried == [endpoint]


def test_gzip_that_was_not_asked_for_is_unpacked(address: str) -> None:
    assert scrape(f"{address}/gzip", 5.0) == VLLM
    limit = len(VLLM) - 1
    with pytest.raises(UnreadableSource, match=f"more than {limit} bytes"):
        scrape(f"{address}/gzip", 5.0, max_bytes=limit)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("half-gzip", "ends before"),
        ("no-gzip", "damaged gzip"),
        ("brotli", "'br'"),
        ("short", "before its end"),
        ("short-chunk", "Incomplete"),
        ("no-last-chunk", "Incomplete"),
    ],
)
def test_a_page_that_is_not_whole_is_refused(address: str, path: str, said: str) -> None:
    with pytest.raises(UnreadableSource, match=said):
        scrape(f"{address}/{path}", 5.0)


def test_headers_are_sent(address: str) -> None:
    assert scrape(f"{address}/token", 5.0, headers={"Authorization": "Bearer t"}) == VLLM
    with pytest.raises(UnreadableSource, match="401"):
        scrape(f"{address}/token", 5.0)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://x/metrics", "metrics", "http://", "http://[::1", "", "http://x:y/m", "http://u:p@x/"],
)
def test_scraping_refuses_other_addresses(url: str) -> None:
    with pytest.raises(ConfigurationError):
        scrape(url, 1.0)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:SECRET@host/m",
        "http://user:SECRET@host:bad/m",
        "htps://user:SECRET@host/m",
        "http://user:SECRET@[::1/m",
        "http://user:a/SECRET@host/m",
        "http://user:SEC#RET@host/m",
        "user:SECRET@host/m",
    ],
)
def test_a_password_in_an_address_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must hold no password") as raised:
        scrape(url, 1.0)
    assert "SEC" not in str(raised.value)
