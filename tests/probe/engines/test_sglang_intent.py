"""Who asked SGLang for which decode graphs, by command line, configuration file and server arguments."""

import sys
from types import SimpleNamespace

import pytest

from replaywatch.probe.engines import command_line, sglang_config

LOCKED = {"_cuda_graph_config_locked": {("decode", "backend")}}


@pytest.fixture
def started_as(monkeypatch):
    def start(*words):
        monkeypatch.setattr(sys, "argv", ["launch_server.py", *words])

    start()
    return start


def runner(**given):
    return SimpleNamespace(server_args=SimpleNamespace(**given), decode_cuda_graph_runner=None)


def intent(**given):
    config = sglang_config.config_fields(runner(**given))
    return config.get("requested_mode"), config.get("enforced_by"), config.get("mode_reason")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--disable-cuda-graph"], "--disable-cuda-graph"),
        (["--disable-decode-cuda-graph"], "--disable-decode-cuda-graph"),
        (["--cuda-graph-backend-decode", "disabled"], "--cuda-graph-backend-decode=disabled"),
        (["--cuda-graph-backend-decode=disabled"], "--cuda-graph-backend-decode=disabled"),
        (["--cuda-graph-config", '{"decode": {"backend": "disabled"}}'], "--cuda-graph-config"),
        (["--disable-decode"], "--disable-decode-cuda-graph"),
        (["--cuda-graph-backend-d", "disabled"], "--cuda-graph-backend-decode=disabled"),
        (["--cuda-graph-c", '{"decode": {"backend": "disabled"}}'], "--cuda-graph-config"),
    ],
)
def test_every_option_that_switches_decode_graphs_off_is_an_author(started_as, words, flag):
    started_as(*words)
    assert intent() == ("DISABLED", f"the flag {flag}", None)
    assert sglang_config.enforced_by(None) is not None


def test_most_exact_option_wins(started_as):
    started_as("--disable-cuda-graph", "--cuda-graph-backend-decode", "breakable")
    assert intent()[0] == "BREAKABLE"


def test_options_of_prefill_ask_nothing_of_decode(started_as):
    started_as("--cuda-graph-config", '{"prefill": {"backend": "disabled"}}', "--cuda-graph-config=[]")
    assert intent() == (None, None, "no option asks for eager, SGLang itself turned decode graphs off")


def test_configuration_file_is_the_author(started_as, tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "server.yaml"
    path.write_text("disable_cuda_graph: true\n")
    started_as("--config", str(path))
    assert intent(disable_cuda_graph=True)[:2] == ("DISABLED", "--disable-cuda-graph in the configuration file")
    command_line._asked_of_command.cache_clear()


def test_what_sglang_turned_off_against_the_command_line_is_told(started_as):
    started_as("--cuda-graph-backend-decode=full")
    assert intent(cuda_graph_backend_decode="full", disable_cuda_graph=True, **LOCKED) == (
        "FULL", None, "the command line says --cuda-graph-backend-decode=full, SGLang itself turned decode graphs off",
    )  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"disable_cuda_graph": True},
        {"cuda_graph_backend_decode": "disabled"},
        {"cuda_graph_config": {"decode": {"backend": "disabled"}}},
        {"cuda_graph_config": SimpleNamespace(decode=SimpleNamespace(backend="disabled"))},
    ],
)
def test_calling_code_is_told_from_sglang_where_it_keeps_what_was_given(started_as, given):
    requested, by, _ = intent(**given, **LOCKED)
    assert requested == "DISABLED"
    assert "the calling code" in by
    assert "SGLang itself" not in by


def test_calling_code_against_the_command_line_is_the_author(started_as):
    started_as("--cuda-graph-backend-decode=full")
    requested, by, _ = intent(cuda_graph_backend_decode="disabled", **LOCKED)
    assert requested == "FULL"
    assert "the calling code" in by


@pytest.mark.parametrize("locked", [set(), {("prefill", "backend"), ("decode", "bs")}])
def test_what_sglang_switched_off_itself_is_blamed_on_nobody(started_as, locked):
    given = {"disable_cuda_graph": True, "cuda_graph_config": SimpleNamespace(decode={"backend": "disabled"})}
    assert intent(**given, _cuda_graph_config_locked=locked) == (
        None, None, "no option asks for eager, SGLang itself turned decode graphs off",
    )  # fmt: skip


def test_older_releases_cannot_tell_the_caller_from_sglang(started_as):
    assert intent(disable_cuda_graph=True, attention_backend="torch_native") == (
        None, None, "no option asks for eager, the calling code or SGLang itself turned decode graphs off",
    )  # fmt: skip


def test_option_that_is_kept_as_explicit_does_not_make_the_caller_the_author(started_as):
    started_as("--cuda-graph-config", '{"decode": {"backend": "full"}}')
    requested, by, reason = intent(cuda_graph_config={"decode": {"backend": "disabled"}}, **LOCKED)
    assert (requested, by) == ("FULL", None)
    assert reason.endswith("--cuda-graph-config, the calling code or SGLang itself turned decode graphs off")


@pytest.mark.parametrize(("settled", "given", "told"), [(8192, None, "8192"), (None, 4096, "4096"), (None, None, None)])
def test_longest_context_is_a_setting(started_as, settled, given, told):
    of_model = runner(context_length=given)
    of_model.model_config = SimpleNamespace(context_len=settled)
    assert sglang_config.config_fields(of_model)["settings"].get("context_length") == told


def test_role_of_prefill_alone_has_no_decode_graphs_by_design(started_as):
    assert intent(disaggregation_mode="prefill", **LOCKED) == (None, None, None)
    assert "SGLang itself" in intent(disaggregation_mode="decode", **LOCKED)[2]


def test_graphs_that_run_have_no_reason_to_be_off(started_as):
    assert sglang_config.parted(SimpleNamespace(), "FULL") is None
