"""The engine's metrics and log as second witnesses: read, shipped, shown without a probe, set against a probe."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.conftest import StartAgent
from agent.frames import Probe, frame, wait_until, without_snapshots
from agent.receiver import Receiver
from agent.test_metrics import scrape, shown
from collector.papers import make_papers, needs_openssl
from replaywatch.agent.contradiction import MOST_PARTS, Contradictions
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.log_follower import MAX_READ_BYTES, LogFollower
from replaywatch.agent.witness import LogWitness, MetricsWitness
from replaywatch.agent.witness_watch import WitnessWatch
from replaywatch.contract.errors import ConfigurationError, UnreadableSource
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Dispatch, Phase, Window

PAGE = """\
# TYPE sglang:cuda_graph_passes_total counter
sglang:cuda_graph_passes_total{{mode="decode_cuda_graph",model_name="m",tp_rank="0"}} {graph}
sglang:cuda_graph_passes_total{{mode="decode_none",model_name="m",tp_rank="0"}} {eager}
"""
NOW = 1_790_000_000 * 10**9
FIRST_LINE = (
    "(EngineCore pid=42) INFO 11-20 09:00:00 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: "
    "model='m'\n"
)
SIZES_LINE = FIRST_LINE.rstrip() + (
    ", compilation_config={'cudagraph_mode': 'FULL', 'cudagraph_capture_sizes': [1, 32], 'max_capture_size': 32}\n"
)
EAGER_LINE = (
    "(EngineCore pid=42) INFO 11-20 09:0{minute}:01 [vllm.py:1] Enforce eager set, disabling torch.compile and "
    "CUDAGraphs. This is equivalent to setting -cc.mode=none -cc.cudagraph_mode=none\n"
)


TABLE_ROW = (
    "(APIServer pid=10) INFO 11-20 09:{minute:02}:{second:02} [cuda_graph.py:117] "
    "| 48              | 48            | 0            | NONE         | 600   |\n"
)


class Engine:
    """An engine's /metrics whose counters the test moves."""

    def __init__(self) -> None:
        self.graph = self.eager = 1000
        self.scrapes = 0
        self.token: str | None = None
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                engine.scrapes += 1
                if engine.token is not None and self.headers["Authorization"] != f"Bearer {engine.token}":
                    self.send_error(401)
                    return
                body = PAGE.format(graph=engine.graph, eager=engine.eager).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def serve_tls(self, certificate: Path, key: Path) -> None:
        """Speak TLS from the next connection on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def engine() -> Iterator[Engine]:
    it = Engine()
    yield it
    it.close()


def test_an_engine_without_probe_is_shown_and_shipped(
    start_agent: StartAgent, receiver: Receiver, engine: Engine
) -> None:
    agent = start_agent(collector_url=receiver.url, engine_metrics_url=engine.url, witness_seconds=0.1)
    wait_until(lambda: engine.scrapes >= 1)
    engine.graph, engine.eager = 1100, 1300
    wait_until(lambda: shown(scrape(agent.metrics_url), "cudagraph_steps_total", mode="eager"))
    families = scrape(agent.metrics_url)
    assert shown(families, "cudagraph_steps_total", mode="full", engine="sglang", phase="decode") == 100
    assert shown(families, "cudagraph_steps_total", mode="eager", engine="sglang", phase="decode") == 300
    assert (shown(families, "replaywatch_agent_witness_reads_total", witness="metrics", outcome="ok") or 0) >= 2
    wait_until(lambda: any((w.dispatch.steps or {}).get("eager") for w in receiver.windows))
    assert {w.origin for w in receiver.windows} == {"metrics"}


def test_steps_that_a_probe_counts_are_not_shown_twice_and_a_contradiction_is_said(
    start_agent: StartAgent, receiver: Receiver, engine: Engine
) -> None:
    agent = start_agent(collector_url=receiver.url, engine_metrics_url=engine.url, witness_seconds=0.1)
    probed = replace(without_snapshots(0, engine="sglang", phase="decode"), dispatch=Dispatch(steps={"full": 100}))
    with Probe(agent.socket_path) as probe:
        probe.send(frame("a", probed))
        wait_until(lambda: shown(scrape(agent.metrics_url), "cudagraph_steps_total", mode="full") == 100)
        for number in range(200):
            scrapes = engine.scrapes
            engine.graph, engine.eager = engine.graph + 10, engine.eager + 90
            probe.send(frame(f"b{number}", probed))
            wait_until(lambda before=scrapes: engine.scrapes > before)
            if said(receiver):
                break
    assert set(said(receiver)) == {"the engine counts 10% of decode steps as replayed, the probe 100%"}
    assert shown(scrape(agent.metrics_url), "cudagraph_steps_total", mode="eager") is None


def test_a_log_that_contradicts_the_probe_is_said(start_agent: StartAgent, receiver: Receiver, tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(FIRST_LINE)
    agent = start_agent(collector_url=receiver.url, engine_log=path, witness_seconds=0.1)
    probed = replace(without_snapshots(0, engine="vllm"), dispatch=Dispatch(steps={"full": 600}))
    ok = ("replaywatch_agent_witness_reads_total", "log", "ok")
    with Probe(agent.socket_path) as probe:
        for number in range(200):
            probe.send(frame(f"a{number}", probed))
            with path.open("a") as log:
                log.write(TABLE_ROW.format(minute=number // 3, second=number % 3 * 20))
            read = agent.agent.ledger.value(*ok)
            wait_until(lambda before=read: agent.agent.ledger.value(*ok) > before)
            if said(receiver):
                break
    assert set(said(receiver)) == {"the engine counts 0% of all steps as replayed, the probe 100%"}


def said(receiver: Receiver) -> list[str]:
    seen = [o for w in receiver.windows for o in w.observations]
    return [o.detail for o in seen if o.kind == "witness_contradicts"]


@needs_openssl
def test_metrics_with_a_certificate_of_ones_own_and_a_token(tmp_path: Path, engine: Engine) -> None:
    papers = make_papers(tmp_path)
    engine.serve_tls(papers / "server.pem", papers / "server.key")
    engine.token = "secret"
    (papers / "token").write_text("secret\n")
    files = {"ca_file": papers / "authority.pem", "token_file": papers / "token"}
    it = MetricsWitness(engine.url, **files)
    it.read(NOW)
    engine.graph += 5
    recording = it.read(NOW + 10**9)
    assert recording is not None
    assert recording.windows[0].dispatch.steps == {"full": 5}
    with pytest.raises(UnreadableSource, match="401"):
        MetricsWitness(engine.url, ca_file=files["ca_file"]).read(NOW)
    with pytest.raises(UnreadableSource, match=r"(?i)certificate"):
        MetricsWitness(engine.url, token_file=files["token_file"]).read(NOW)


@pytest.mark.parametrize("option", ["engine_metrics_ca_file", "engine_metrics_token_file"])
@pytest.mark.parametrize("name", ["empty", "absent"])
def test_a_file_for_the_metrics_that_cannot_be_used_is_named(
    start_agent: StartAgent, tmp_path: Path, option: str, name: str
) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError, match=f"--{option.replace('_', '-')}"):
        start_agent(engine_metrics_url="https://127.0.0.1:1/metrics", **{option: tmp_path / name})
    start_agent()  # nothing was left behind


def test_a_witness_that_cannot_be_asked_is_counted_and_the_agent_goes_on(
    start_agent: StartAgent, receiver: Receiver, tmp_path: Path
) -> None:
    agent = start_agent(
        collector_url=receiver.url,
        engine_metrics_url="http://127.0.0.1:1/metrics",
        engine_log=tmp_path / "absent.log",
        witness_seconds=0.1,
    )
    failed = ("replaywatch_agent_witness_reads_total", "metrics", "failed")
    wait_until(lambda: agent.agent.ledger.value(*failed) >= 2)
    assert agent.agent.ledger.value("replaywatch_agent_witness_reads_total", "log", "failed") >= 1
    with Probe(agent.socket_path) as probe:
        probe.send(frame("a"))
    wait_until(lambda: len(receiver.windows) == 1)


def test_the_log_of_an_eager_engine_reaches_the_collector_once_over_a_restart(
    start_agent: StartAgent, receiver: Receiver, tmp_path: Path
) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(FIRST_LINE + EAGER_LINE.format(minute=0))
    options: dict[str, Any] = {"collector_url": receiver.url, "engine_log": path, "witness_seconds": 0.05}
    first = start_agent(**options)
    wait_until(lambda: receiver.windows)
    with path.open("a") as log:
        log.write(EAGER_LINE.format(minute=5))
    ok = ("replaywatch_agent_witness_reads_total", "log", "ok")
    read = first.agent.ledger.value(*ok)
    wait_until(lambda: first.agent.ledger.value(*ok) > read + 1)
    first.stop()
    (batch, *_) = receiver.stored.values()
    assert any(c.graphs_enabled is False for c in batch.configs.values())
    assert {w.origin for w in receiver.windows} == {"log"}
    second = start_agent(**options)
    wait_until(lambda: times_disabled(receiver) == 2)
    wait_until(lambda: second.agent.ledger.value(*ok) >= 3)
    assert times_disabled(receiver) == 2


def times_disabled(receiver: Receiver) -> int:
    seen = [o for w in receiver.windows for o in w.observations]
    return sum(o.count for o in seen if o.kind == "graphs_disabled")


Follow = Callable[..., LogFollower]


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Makes followers of a path with a memory or none, and closes them."""
    with ExitStack() as stack:

        def make(path: Path, memory: Path | None = None) -> LogFollower:
            return stack.enter_context(closing(LogFollower(path, memory)))

        yield make


def test_appended_text_is_read_once(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    follower = follow(path)
    assert follower.read().text == "one\n"
    assert follower.read().text == ""
    with path.open("a") as log:
        log.write("two\n")
    assert follower.read().text == "two\n"


def test_of_a_renamed_log_the_rest_is_read_then_the_new_one(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    follower = follow(path)
    follower.read()
    with path.open("a", buffering=1) as log:
        log.write("last\n")
        path.rename(tmp_path / "log.1")
        assert follower.read().text == "last\n"
        log.write("very last")
    path.write_text("new\n")
    assert follower.read().text == "very last\nnew\n"
    assert follower.read().text == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["append", "append a part", "read", "rename", "delete"]), max_size=20))
def test_every_line_of_a_rotated_log_is_read_once(tmp_path_factory: pytest.TempPathFactory, deeds: list[str]) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.touch()
    written = ""
    with closing(LogFollower(path, None)) as follower:
        read = follower.read().text
        for number, deed in enumerate(deeds):
            if deed != "append":
                path.touch()
                read += follower.read().text  # a file that came and went between two readings would never be seen
            text = f"line {number}" + ("" if deed == "append a part" else "\n")
            written += text
            with path.open("a") as log:
                log.write(text)
            if deed == "rename":
                path.rename(path.with_suffix(f".{number}"))
            elif deed == "delete":
                path.unlink()
        path.touch()
        read += follower.read().text
    assert read.replace("\n", "") == written.replace("\n", "")


def test_a_renamed_log_is_not_lost_while_the_new_one_cannot_be_read(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    follower = follow(path)
    follower.read()
    with path.open("a") as log:
        log.write("last\n")
    path.rename(tmp_path / "log.1")
    path.mkdir()
    with pytest.raises(UnreadableSource):
        follower.read()
    path.rmdir()
    path.write_text("new\n")
    assert follower.read().text.split() == ["last", "new"]


def test_a_deleted_log_is_read_to_its_end(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    follower = follow(path)
    follower.read()
    with path.open("a") as log:
        log.write("last\n")
    path.unlink()
    assert follower.read().text == "last\n"
    path.write_text("new\n")
    assert follower.read().text.strip() == "new"


@pytest.mark.parametrize("new", ["t\n", "as long\n", "longer than the one before\n"])
def test_a_log_that_was_written_anew_is_read_from_its_start(tmp_path: Path, follow: Follow, new: str) -> None:
    path = tmp_path / "log"
    path.write_text("old old\n")
    follower = follow(path)
    follower.read()
    path.write_text(new)
    assert follower.read().text.strip("\n") == new.strip("\n")
    assert follower.read().text == ""


def test_what_was_read_before_a_restart_is_told_apart(tmp_path: Path, follow: Follow) -> None:
    path, memory = tmp_path / "log", tmp_path / "memory.json"
    path.write_text("before\n")
    first = follow(path, memory)
    first.read()
    first.remember()
    with path.open("a") as log:
        log.write("after\n")
    reading = follow(path, memory).read()
    assert (reading.seen_before, reading.text) == ("before\n", "after\n")
    path.write_text("another file, of the same inode\n")
    reading = follow(path, memory).read()
    assert (reading.seen_before, reading.text) == ("", "another file, of the same inode\n")


def test_a_memory_without_a_head_goes_by_the_inode(tmp_path: Path, follow: Follow) -> None:
    path, memory = tmp_path / "log", tmp_path / "memory.json"
    path.write_text("before\nafter\n")
    memory.write_text(json.dumps({"inode": path.stat().st_ino, "position": len("before\n")}))
    reading = follow(path, memory).read()
    assert (reading.seen_before, reading.text) == ("before\n", "after\n")
    memory.write_text(json.dumps({"inode": path.stat().st_ino + 1, "position": len("before\n")}))
    assert follow(path, memory).read().text == "before\nafter\n"


@given(
    st.binary(max_size=60) | st.from_regex(rb'\{"inode": 1, "position": .{0,4}, "head_bytes": .{0,4}\}', fullmatch=True)
)
def test_a_damaged_memory_is_forgotten(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("m")
    (folder / "log").write_text("x\n")
    (folder / "memory.json").write_bytes(content)
    with closing(LogFollower(folder / "log", folder / "memory.json")) as follower:
        assert follower.read().text == "x\n"


def test_of_a_huge_log_the_start_and_the_end_are_read(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first line\n" + b"x" * (2 * MAX_READ_BYTES) + b"\nlast line\n")
    text = follow(path).read().text
    assert len(text) <= MAX_READ_BYTES + 1
    assert text.startswith("first line\n")
    assert text.endswith("\nlast line\n")


def test_a_letter_cut_in_two_by_a_reading_is_whole(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "log"
    path.write_bytes("é".encode()[:1])
    follower = follow(path)
    assert follower.read().text == ""
    with path.open("ab") as log:
        log.write("é".encode()[1:])
    assert follower.read().text == "é"


def test_a_log_that_cannot_be_read_is_the_named_error(tmp_path: Path, follow: Follow) -> None:
    with pytest.raises(UnreadableSource, match="--engine-log"):
        follow(tmp_path / "absent").read()
    with pytest.raises(UnreadableSource, match="--engine-log"):
        follow(tmp_path).read()


def test_a_log_without_an_engine_says_nothing(tmp_path: Path, follow: Follow) -> None:
    (tmp_path / "log").write_text("hello\n" * 100)
    assert LogWitness(follow(tmp_path / "log")).read(NOW) is None


def test_a_rotated_log_keeps_what_the_first_file_said_of_the_configuration(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(SIZES_LINE)
    it = LogWitness(follow(path))
    it.read(NOW)
    path.rename(tmp_path / "vllm.log.1")
    path.write_text(TABLE_ROW.format(minute=1, second=0))
    it.read(NOW + 10**9)
    recording = it.read(NOW + 60 * 10**9)
    assert recording is not None
    assert [w.dispatch.fallbacks for w in recording.windows] == [{"above_ceiling": 600}]


def test_steps_from_before_the_agent_are_told_apart_from_those_after(tmp_path: Path, follow: Follow) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(SIZES_LINE + TABLE_ROW.format(minute=1, second=0))
    it = LogWitness(follow(path))
    first = it.read(NOW)
    with path.open("a") as log:
        log.write(TABLE_ROW.format(minute=1, second=1))
    it.read(NOW + 10**9)
    second = it.read(NOW + 60 * 10**9)
    for recording in (first, second):
        assert recording is not None
        assert [w.dispatch.steps for w in recording.windows] == [{"eager": 600}]


def witness(**steps: int) -> Window:
    return replace(without_snapshots(0, engine="sglang"), dispatch=Dispatch(steps=steps or None), origin="metrics")


def in_phase(window: Window, phase: Phase | None, engine: Literal["sglang", "torch"] = "sglang") -> Window:
    return replace(window, workload=replace(window.workload, phase=phase, engine=engine))


CONFIGS = {
    "vllm": EngineConfig(
        engine="vllm", data_parallel_size=2, tensor_parallel_size=3, settings={"pipeline_parallel_size": "2"}
    ),
    "sglang": EngineConfig(
        engine="sglang", data_parallel_size=2, tensor_parallel_size=6, settings={"enable_dp_attention": "True"}
    ),
}


def contradiction(told: Window, *probed: Window) -> str | None:
    """What is said of a witness that tells the same for some time, while probes do."""
    contradictions = Contradictions()
    for _ in range(8):
        (found,) = contradictions.against("metrics", [told])
        contradictions.hear_probe(probed, CONFIGS)
    return found.detail if found is not None else None


def of(window: Window, **workload: Any) -> Window:
    return replace(window, workload=replace(window.workload, **workload))


def test_agreeing_witnesses_say_nothing() -> None:
    assert contradiction(witness(full=90, eager=10), witness(full=180, eager=21)) is None


def test_few_steps_contradict_nobody() -> None:
    assert contradiction(witness(full=10), witness(eager=1000)) is None
    assert contradiction(witness(full=1000), witness(eager=10)) is None


def test_a_probe_that_sees_no_step_of_its_engine_is_said() -> None:
    elsewhere = replace(witness(full=9), workload=replace(witness().workload, phase="prefill"))
    assert "the probe none" in str(contradiction(witness(full=500), elsewhere))
    assert contradiction(witness(full=500)) is None


def test_a_phase_that_a_probe_does_not_name_is_decode_where_its_adapter_names_the_others() -> None:
    told = in_phase(witness(full=500), "decode")
    assert contradiction(told, in_phase(witness(full=500), None)) is None
    assert "the probe 0%" in str(contradiction(told, in_phase(witness(eager=500), None)))


def test_a_probe_that_tells_no_phases_apart_contradicts_no_phase() -> None:
    told, seen = (in_phase(witness(full=500), phase, engine="torch") for phase in ("decode", None))
    assert contradiction(told, seen) is None


def test_a_witness_without_phases_is_set_against_all_of_them() -> None:
    seen = [in_phase(witness(full=400), None), in_phase(witness(eager=100), "prefill")]
    assert contradiction(in_phase(witness(full=400, eager=100), None), *seen) is None
    assert contradiction(in_phase(witness(full=500), None), *seen) is not None


def test_each_witness_is_compared_by_itself() -> None:
    contradictions = Contradictions()
    for _ in range(8):
        found = [contradictions.against(name, [witness(full=500)])[0] for name in ("metrics", "log")]
        contradictions.hear_probe([witness(eager=500)], {})
    assert found == [found[0]] * 2
    assert "the probe 0%" in str(found[0])


def test_the_first_word_of_a_witness_may_be_older_than_the_agent() -> None:
    contradictions = Contradictions()
    said = contradictions.against("log", [witness(full=500)])
    for _ in range(8):
        contradictions.hear_probe([witness(eager=500)], {})
        said += contradictions.against("log", [witness()])
    assert said == [None] * 9


def test_a_change_of_load_at_the_edge_of_an_interval_contradicts_nobody() -> None:
    contradictions = Contradictions()
    told = [witness(full=300)] * 6 + [witness(eager=300)] * 6
    seen = [witness(full=300)] * 6 + [witness(full=100, eager=200)] + [witness(eager=300)] * 5
    found = []
    for engine, probe in zip(told, seen, strict=True):
        found += contradictions.against("log", [engine])
        contradictions.hear_probe([probe], {})
    assert found == [None] * 12


def test_steps_that_the_probe_tells_later_are_not_missed() -> None:
    contradictions = Contradictions()
    elsewhere = of(witness(full=9), phase="prefill")
    found = []
    for at in range(12):
        found += contradictions.against("metrics", [witness(full=500 if at == 6 else 0)])
        contradictions.hear_probe([elsewhere, *([witness(full=500)] if at == 7 else [])], {})
    assert found == [None] * 12


def test_processes_that_come_and_go_under_a_silent_witness_are_bounded() -> None:
    contradictions = Contradictions()
    contradictions.against("log", [])
    contradictions.hear_probe([of(witness(full=1), pid=pid) for pid in range(MOST_PARTS + 10)], {})
    (hearing,) = contradictions._hearings.values()
    assert [len(interval) for interval in hearing.probed] == [MOST_PARTS]


def test_a_contradiction_is_said_once_at_the_last_window_of_its_workload() -> None:
    contradictions = Contradictions()
    windows = [witness(full=300), witness(full=300), of(witness(full=300), rank=1)]
    for _ in range(8):
        found = contradictions.against("log", windows)
        contradictions.hear_probe([witness(eager=500)], {})
    assert [one is not None for one in found] == [False, True, True]


def test_drafts_are_not_what_an_engine_counts() -> None:
    seen = [witness(full=300), of(witness(eager=900), component="draft")]
    assert contradiction(witness(full=300), *seen) is None


def test_another_model_contradicts_nobody() -> None:
    seen = [of(witness(full=300), model_name="llama-1b"), of(witness(eager=900), model_name="llama-8b")]
    assert contradiction(of(witness(full=300), model_name="acme/llama-1b"), *seen) is None
    assert "the probe 0%" in str(contradiction(of(witness(full=300), model_name="acme/llama-8b"), *seen))


def test_replicas_that_cannot_be_told_apart_contradict_none_of_them() -> None:
    seen = [of(witness(full=300), rank=0), of(witness(full=75, eager=225), rank=1)]
    told = [of(witness(full=300), rank=0), of(witness(full=75, eager=225), rank=1), witness(full=375, eager=225)]
    assert [contradiction(one, *seen) for one in told] == [None] * 3
    assert contradiction(of(witness(eager=300), rank=0), *seen) is not None


@pytest.mark.parametrize(("engine", "ranks"), [("vllm", (0, 5, 6, 11)), ("sglang", (0, 2, 3, 5))])
def test_a_replica_is_set_against_its_own_processes(engine: str, ranks: tuple[int, ...]) -> None:
    """Two replicas: of two stages of three ranks each (vLLM), of three of six ranks (SGLang)."""
    steps = ({"full": 300}, {"full": 300}, {"eager": 300}, {"eager": 300})
    seen = [
        replace(of(witness(**n), engine=engine, rank=rank, component="stage 1"), config_id=engine)
        for rank, n in zip(ranks, steps, strict=True)
    ]
    for rank, own, other in ((0, "full", "eager"), (1, "eager", "full")):
        assert contradiction(of(witness(**{own: 300}), engine=engine, rank=rank), *seen) is None
        assert contradiction(of(witness(**{other: 300}), engine=engine, rank=rank), *seen) is not None
    assert contradiction(of(witness(full=300), engine=engine, rank=7), *seen) is None  # on another node
    log = replace(of(witness(eager=300), engine=engine, rank=0), origin="log")
    assert contradiction(log, *seen) is None  # it may sum up all replicas under the first


def test_a_mixed_batch_is_what_sglang_counts_as_a_prefill() -> None:
    told = in_phase(witness(eager=200), "prefill")
    assert contradiction(told, in_phase(witness(full=500), None), in_phase(witness(eager=200), "mixed")) is None
    assert contradiction(told, in_phase(witness(full=500), None), in_phase(witness(full=200), "mixed")) is not None


def test_a_sample_of_the_steps_may_differ_by_chance() -> None:
    assert contradiction(witness(full=36, eager=24), witness(full=500, eager=500)) is None
    assert contradiction(witness(full=360, eager=240), witness(full=480, eager=520)) is not None


class Told:
    """A witness that does what a test says, and counts how often it was asked."""

    def __init__(self, name: str, read: Callable[[int], None]) -> None:
        self.name = name
        self.asked = 0
        self._read = read

    def read(self, now_ns: int) -> None:
        self.asked += 1
        self._read(self.asked)

    def close(self) -> None:
        pass


def watch(*witnesses: Told) -> WitnessWatch:
    return WitnessWatch(witnesses, 0.01, Ledger(), lambda: NOW, lambda _: None)


def test_a_witness_that_fails_in_an_unforeseen_way_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    it = Told("log", lambda n: int("1.2.3" if n < 4 else "1"))
    watching = watch(it)
    watching.start()
    wait_until(lambda: it.asked > 4)
    watching.stop(1)
    assert watching._ledger.value("replaywatch_agent_witness_reads_total", "log", "failed") == 3
    assert [r.getMessage() for r in caplog.records] == [
        "the witness log cannot be read (ValueError(\"invalid literal for int() with base 10: '1.2.3'\"))"
    ]


def test_a_witness_that_hangs_delays_no_other() -> None:
    released = threading.Event()
    hanging, other = Told("metrics", lambda _: released.wait(30)), Told("log", lambda _: None)
    watching = watch(hanging, other)
    watching.start()
    wait_until(lambda: other.asked > 3)
    assert hanging.asked == 1
    released.set()
    watching.stop(1)


def test_without_witnesses_no_thread_runs() -> None:
    watching = watch()
    watching.start()
    assert watching._threads == []
    watching.stop(0)
