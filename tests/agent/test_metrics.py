"""/metrics: exactly the catalogue's names and labels, base units, bounded, and gone when the workload is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from agent.conftest import StartAgent
from agent.frames import Probe, frame, wait_until, window, without_snapshots
from contract.windows import WINDOW
from replaywatch.agent.board import AFTERGLOW_NS, Board, ClassicHistogram
from replaywatch.agent.exposition import Exposition, classic_buckets
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.measures import HISTOGRAMS, LARGEST_SIZE_EXPONENT
from replaywatch.agent.metrics_server import MetricsServer
from replaywatch.agent.serve import STUCK_NS
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.identity import workload_id
from replaywatch.contract.metrics import CATALOGUE, WORKLOAD_LABELS
from replaywatch.contract.window import Dispatch, Window

IN_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
ROWS = {m.name: m for m in CATALOGUE if m.exposer in ("agent", "both")}
NOW = 10**18


def scrape(url: str | None) -> dict[str, Metric]:
    assert url is not None
    with urllib.request.urlopen(url, timeout=10) as answer:
        return {f.name: f for f in text_string_to_metric_families(answer.read().decode())}


def exposed(board: Board, ledger: Ledger | None = None) -> dict[str, Metric]:
    registry = CollectorRegistry()
    registry.register(Exposition(board, ledger or Ledger(), {}))
    return {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}


def shown(families: dict[str, Metric], sample: str, **labels: str) -> float | None:
    """The one sample with these labels; None when there is none."""
    found = [
        s.value for f in families.values() for s in f.samples if s.name == sample and labels.items() <= s.labels.items()
    ]
    assert len(found) <= 1
    return found[0] if found else None


def made_board(*windows: Window, limit: int = 256, stale_ns: int = 10**9, process: str = "p") -> Board:
    board = Board(limit, stale_ns, Ledger())
    board.add(windows, process, NOW)
    return board


def test_exposed_names_kinds_and_labels_are_the_catalogues(start_agent: StartAgent) -> None:
    agent = start_agent()
    with Probe(agent.socket_path) as probe:
        probe.send(frame("a"))
    wait_until(lambda: shown(scrape(agent.metrics_url), "cudagraph_replays_total"))
    families = scrape(agent.metrics_url)
    names = {f"{n}_total" if f.type == "counter" else n: f for n, f in families.items()}
    assert set(names) == set(ROWS)
    for name, family in names.items():
        row = ROWS[name]
        assert family.type == ("gauge" if row.kind == "info" else row.kind)
        assert family.documentation == row.help
        expected = {*(WORKLOAD_LABELS if row.scope == "workload" else ()), *row.labels}
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == expected


def test_a_window_is_shown_in_base_units() -> None:
    families = exposed(made_board(without_snapshots(0, gpu_index=3, gpu_uuid="GPU-x", namespace=None)))
    labels = {"pod": "pod-a", "namespace": "", "gpu": "3", "UUID": "GPU-x", "rank": "0", "component": ""}
    assert shown(families, "cudagraph_steps_total", mode="full", **labels) == 90
    assert shown(families, "cudagraph_steps_total", mode="eager", **labels) == 10
    assert shown(families, "cudagraph_fallbacks_total", reason="above_ceiling") == 10
    assert shown(families, "cudagraph_replay_seconds_sum") == pytest.approx(5 * 0.0028)
    assert shown(families, "cudagraph_replay_seconds_count") == 5
    assert shown(families, "cudagraph_kernel_coverage_ratio") == 0.9
    assert shown(families, "cudagraph_device_busy_ratio") == 0.8
    assert shown(families, "cudagraph_live_graphs") == 8
    assert shown(families, "cudagraph_batch_size_bucket", le="4.0") == 90
    assert shown(families, "cudagraph_batch_size_sum") == 90 * 4 + 10 * 48
    assert shown(families, "cudagraph_pool_bytes") is None
    assert shown(families, "cudagraph_capture_seconds_count") is None


def test_counters_add_up_over_windows_and_gauges_are_the_last() -> None:
    board = made_board(without_snapshots(0))
    last = without_snapshots(1)
    board.add([Window(**{**_fields(last), "dispatch": Dispatch(steps={"full": 1}, live_graphs=3)})], "p", NOW)
    families = exposed(board)
    assert shown(families, "cudagraph_steps_total", mode="full") == 91
    assert shown(families, "cudagraph_live_graphs") == 3


def test_processes_of_one_workload_are_one_series() -> None:
    board = made_board(without_snapshots(0))
    board.add([without_snapshots(0)], "q", NOW)
    families = exposed(board)
    assert shown(families, "cudagraph_live_graphs") == 16
    assert shown(families, "cudagraph_kernel_coverage_ratio") == 0.9
    board.end("q", NOW)
    assert shown(exposed(board), "cudagraph_live_graphs") == 8
    assert shown(exposed(board), "cudagraph_replays_total") == 180


def _fields(window: Window) -> dict[str, Any]:
    return {name: getattr(window, name) for name in window.__slots__}


@given(st.lists(st.integers(0, 1 << 40), max_size=30), st.sampled_from(sorted(HISTOGRAMS)))
def test_classic_buckets_hold_exactly_the_values_below_their_bounds(values: list[int], name: str) -> None:
    _, first, last = HISTOGRAMS[name]
    classic = ClassicHistogram(first, [0] * (last - first + 2))
    classic.add(Histogram.of(values))
    buckets = classic_buckets(classic)
    assert buckets[-1] == ("+Inf", len(values))
    assert len(buckets) == last - first + 2 <= 20
    for exponent, (bound, count) in zip(range(first, last + 1), buckets, strict=False):
        assert float(bound) == pytest.approx(2**exponent / 1e9)
        assert count == sum(v <= 2**exponent for v in values)
    assert classic.sum == sum(values)


@given(st.dictionaries(st.integers(-2, 5000), st.integers(-1, 50), max_size=30))
def test_sizes_are_counted_below_the_powers_of_two(sizes: dict[int, int]) -> None:
    classic = ClassicHistogram.between(0, LARGEST_SIZE_EXPONENT)
    classic.add_sizes(sizes)
    real = {size: count for size, count in sizes.items() if size >= 1 and count > 0}
    for exponent, (bound, count) in zip(range(LARGEST_SIZE_EXPONENT + 1), classic_buckets(classic, 1.0), strict=False):
        assert float(bound) == 2**exponent
        assert count == sum(n for size, n in real.items() if size <= 2**exponent)
    assert classic_buckets(classic, 1.0)[-1] == ("+Inf", sum(real.values()))
    assert classic.sum == sum(size * n for size, n in real.items())


@given(st.lists(WINDOW, max_size=6))
def test_any_windows_give_a_page_that_parses(windows: list[Window]) -> None:
    families = exposed(made_board(*windows, limit=3))
    assert len(families) == len(ROWS)
    modes = {s.labels["mode"] for s in families["cudagraph_steps"].samples}
    assert modes <= {"full", "piecewise", "eager", "other"}


def test_workloads_beyond_the_limit_are_counted_not_shown() -> None:
    ledger = Ledger()
    board = Board(2, 10**9, ledger)
    for n in range(5):
        board.add([without_snapshots(0, pod=f"pod-{n}")], n, NOW)
    families = exposed(board, ledger)
    pods = {s.labels["pod"] for s in families["cudagraph_replays"].samples}
    assert pods == {"pod-0", "pod-1"}
    assert shown(families, "replaywatch_agent_hidden_windows_total") == 3


def test_names_of_errors_cannot_multiply() -> None:
    calls = {f"cudaError{n}": 1 for n in range(200)} | {"free text, {} and \n": 5}
    board = made_board(Window(**{**_fields(without_snapshots(0)), "dispatch": Dispatch(failed_calls=calls)}))
    samples = exposed(board)["cudagraph_failed_calls"].samples
    assert len(samples) <= 40
    assert sum(s.value for s in samples) == 205
    assert all(s.labels["error"].isidentifier() for s in samples)


def test_label_values_are_escaped() -> None:
    families = exposed(made_board(without_snapshots(0, pod='a"b\\c\nd', model_name="x" * 2000)))
    (sample,) = families["cudagraph_replays"].samples
    assert sample.labels["pod"] == 'a"b\\c\nd'
    assert len(sample.labels["model_name"]) == 253


def test_negative_amounts_never_turn_a_counter_back() -> None:
    board = made_board(without_snapshots(0))
    odd = Dispatch(steps={"full": -5}, replays=-1)
    board.add([Window(**{**_fields(without_snapshots(0)), "dispatch": odd})], "p", NOW)
    assert shown(exposed(board), "cudagraph_steps_total", mode="full") == 90
    assert shown(exposed(board), "cudagraph_replays_total") == 90


def test_a_silent_workload_leaves() -> None:
    board = made_board(without_snapshots(0), stale_ns=100)
    board.expire(NOW + 100)
    assert shown(exposed(board), "cudagraph_replays_total") == 90
    board.expire(NOW + 101)
    assert shown(exposed(board), "cudagraph_replays_total") is None


def test_an_ended_workload_stays_for_one_more_scrape() -> None:
    board = made_board(without_snapshots(0), stale_ns=10**12)
    board.end("p", NOW)
    board.expire(NOW + AFTERGLOW_NS)
    assert shown(exposed(board), "cudagraph_replays_total") == 90
    assert shown(exposed(board), "cudagraph_live_graphs") is None
    board.expire(NOW + AFTERGLOW_NS + 1)
    assert shown(exposed(board), "cudagraph_replays_total") is None


def test_a_killed_process_takes_its_gauges_along(start_agent: StartAgent) -> None:
    agent = start_agent()
    code = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(sys.argv[1])\n"
        "s.send(sys.stdin.buffer.read()); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(agent.socket_path)], stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(frame("a"))
    child.stdin.close()
    wait_until(lambda: shown(scrape(agent.metrics_url), "cudagraph_live_graphs") == 8)
    assert shown(scrape(agent.metrics_url), "replaywatch_agent_processes") == 1
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    wait_until(lambda: shown(scrape(agent.metrics_url), "replaywatch_agent_processes") == 0)
    families = scrape(agent.metrics_url)
    assert shown(families, "cudagraph_live_graphs") is None
    assert shown(families, "cudagraph_replays_total") == 90


def test_own_cost_is_shown(start_agent: StartAgent) -> None:
    families = scrape(start_agent().metrics_url)
    assert (shown(families, "replaywatch_agent_cpu_seconds_total") or 0) > 0
    assert (shown(families, "replaywatch_agent_resident_bytes") or 0) > 10 << 20


def test_health_is_told_and_other_pages_are_not_found(start_agent: StartAgent) -> None:
    base = str(start_agent().metrics_url).removesuffix("/metrics")
    with urllib.request.urlopen(f"{base}/healthz", timeout=5) as answer:
        assert answer.read() == b"ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/etc/passwd", timeout=5)


def test_an_agent_that_is_stuck_says_so() -> None:
    server = MetricsServer(("127.0.0.1", 0), Exposition(made_board(), Ledger(), {}), lambda: "the loop is stuck")
    server.start()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(server.url.replace("/metrics", "/healthz"), timeout=5)
    server.stop()


def test_a_loop_that_does_not_turn_is_trouble(start_agent: StartAgent) -> None:
    agent = start_agent()
    assert agent.agent.trouble() is None
    agent.stop()
    agent.agent.loop.turned_ns -= STUCK_NS
    assert "has not turned" in str(agent.agent.trouble())


def test_clients_that_never_ask_do_not_stop_a_scrape(start_agent: StartAgent) -> None:
    agent = start_agent()
    port = int(str(agent.metrics_url).rsplit(":", 1)[1].split("/")[0])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    assert shown(scrape(agent.metrics_url), "replaywatch_agent_processes") == 0
    for one in idle:
        one.close()


def test_a_port_in_use_is_a_configuration_error(start_agent: StartAgent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ConfigurationError, match="--listen"):
        start_agent(listen=f"127.0.0.1:{other.getsockname()[1]}")
    start_agent()  # the socket of the agent that failed is free again


def test_a_scrape_of_many_workloads_is_quick() -> None:
    board = Board(256, 10**12, Ledger())
    for n in range(256):
        board.add([without_snapshots(0, pod=f"pod-{n}")], n, NOW)
    started = time.process_time()
    exposed(board)
    assert time.process_time() - started < 5


def examples_of(url: str) -> dict[tuple[str, str], Any]:
    """Exemplars by metric and its own label, as a scraper that asks for OpenMetrics gets them."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=IN_OPENMETRICS), timeout=10) as answer:
        families = list(openmetrics.text_string_to_metric_families(answer.read().decode()))
    return {
        (s.name, s.labels.get("reason") or s.labels.get("mode") or ""): s.exemplar
        for f in families
        for s in f.samples
        if s.exemplar is not None
    }


def test_counters_carry_an_example_that_leads_to_the_workloads_page() -> None:
    earlier = replace(window(0), dispatch=Dispatch(steps={"full": 5, "eager": 2}, fallbacks={"forced_eager": 2}))
    later = replace(window(1), dispatch=Dispatch(steps={"full": 7}))
    for windows in ((earlier, later), (later, earlier)):
        server = MetricsServer(("127.0.0.1", 0), Exposition(made_board(*windows), Ledger(), {}), lambda: None)
        server.start()
        try:
            found = examples_of(server.url)
        finally:
            server.stop()
        assert set(found) == {
            ("cudagraph_steps_total", "full"),
            ("cudagraph_steps_total", "eager"),
            ("cudagraph_fallbacks_total", "forced_eager"),
        }
        latest, only = found["cudagraph_steps_total", "full"], found["cudagraph_steps_total", "eager"]
        assert latest.labels == only.labels == {"workload": workload_id(earlier.workload)}
        assert (latest.value, float(latest.timestamp)) == (7.0, pytest.approx(later.end_ns / 1e9))
        assert (only.value, float(only.timestamp)) == (2.0, pytest.approx(earlier.end_ns / 1e9))
