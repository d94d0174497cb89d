"""Who asked vLLM for which graph mode, and the first place that parts from it."""

import logging
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from replaywatch.probe.engines import command_line, vllm_asked
from replaywatch.probe.engines.vllm import VllmAdapter
from replaywatch.probe.engines.vllm_intent import intent_of

FLAG = "the flag --enforce-eager"


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch):
    for name in [n for n in os.environ if n.upper().endswith("ENFORCE_EAGER")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("TORCH_COMPILE_DISABLE", raising=False)


@pytest.fixture
def started_as(monkeypatch):
    def start(*words):
        monkeypatch.setattr(sys, "argv", ["vllm", "serve", "tiny", *words])

    start()
    return start


def arguments(enforce_eager=False, optimization_level=2, **compilation):
    compilation = {"cudagraph_mode": None, "mode": None, **compilation}
    return SimpleNamespace(
        enforce_eager=enforce_eager,
        optimization_level=optimization_level,
        compilation_config=SimpleNamespace(**compilation),
    )


@pytest.mark.parametrize("words", [["--enforce-eager"], ["--enforce_eager"], ["--enforce-eager=True"], ["--enforce"]])
def test_flag_is_known_in_all_spellings(started_as, words):
    started_as(*words)
    assert intent_of(arguments(enforce_eager=True)) == {"mode": "NONE", "by": FLAG}


@pytest.mark.parametrize(
    ("words", "given", "mode"),
    [
        (["-O0"], {"optimization_level": 0}, "NONE"),
        (["-O", "0"], {"mode": 0}, "NONE"),
        (["-cc", '{"mode": 0}'], {"mode": 0}, "NONE"),
        (["-cc.cudagraph_mode=none"], {"cudagraph_mode": "NONE"}, "NONE"),
        (["--compilation-config.cudagraph_mode", "FULL"], {"cudagraph_mode": "FULL"}, "FULL"),
        (["--compilation_config", '{"cudagraph_mode": "FULL"}'], {"cudagraph_mode": "FULL"}, "FULL"),
        (["-cc", '{"cudagraph_mode": 0}'], {"cudagraph_mode": "NONE"}, "NONE"),
        (["-cc.cudagraph_mode=1"], {"cudagraph_mode": "PIECEWISE"}, "PIECEWISE"),
        (["--compilation.cudagraph_mode=2"], {"cudagraph_mode": "FULL"}, "FULL"),
        (["-cc.cudagraph_mode=FULL"], {"cudagraph_mode": 2}, "FULL"),
        (["--optimization", "0"], {"optimization_level": 0}, "NONE"),
        (["-O", '{"use_cudagraph": false}'], {"use_cudagraph": False}, "NONE"),
        (["-O", '{"full_cuda_graph": true}'], {"full_cuda_graph": True}, "FULL"),
    ],
)
def test_compilation_options_are_an_ask_of_the_command_line(started_as, words, given, mode):
    started_as(*words)
    intent = intent_of(arguments(**given))
    assert (intent["mode"], "parted" in intent) == (mode, False)
    assert intent.get("by", "").endswith(" on the command line") == (mode == "NONE")


@pytest.mark.parametrize("name", ["mode", "level"])
def test_no_compilation_asks_for_no_graphs_only_where_vllm_has_none_then(started_as, monkeypatch, name):
    module = ModuleType("vllm.config.compilation")
    module.CUDAGraphMode = type("CUDAGraphMode", (), {})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    started_as(f"-cc.{name}=0")
    assert intent_of(arguments(**{name: 0}))["mode"] == "NONE"
    module.CUDAGraphMode.without_piecewise = lambda self: self
    assert intent_of(arguments(**{name: 0})) == {}
    started_as("-O0")
    assert intent_of(arguments(optimization_level=0))["mode"] == "NONE"


def test_nothing_asked_is_no_intent(started_as):
    assert intent_of(arguments()) == {}
    assert intent_of(SimpleNamespace(compilation_config=SimpleNamespace(level=0))) == {}  # as before 0.10.1


def test_wrapper_against_the_command_line_is_the_place_where_they_part(started_as):
    started_as("-cc.cudagraph_mode=FULL_AND_PIECEWISE", "--no-enforce-eager")
    intent = intent_of(arguments(enforce_eager=True, cudagraph_mode="FULL_AND_PIECEWISE"))
    assert intent["mode"] == "FULL_AND_PIECEWISE"
    assert intent["by"] == "enforce_eager=True, set by the calling code (not on the command line)"
    assert intent["parted"] == (
        "the command line says cudagraph_mode=FULL_AND_PIECEWISE, EngineArgs says enforce_eager=True"
    )


def test_negated_flag_asks_for_graphs(started_as):
    started_as("--no-enforce-eager")
    assert intent_of(arguments()) == {"mode": "ENABLED"}
    assert "EngineArgs says enforce_eager=True" in intent_of(arguments(enforce_eager=True))["parted"]


def test_lost_flag_is_the_place_where_they_part(started_as):
    started_as("--enforce-eager")
    intent = intent_of(arguments())
    assert (intent["mode"], "by" in intent) == ("NONE", False)
    assert "EngineArgs have the default" in intent["parted"]


@pytest.fixture
def file_of(tmp_path, started_as):
    pytest.importorskip("yaml")

    def write(text, *words):
        path = tmp_path / "serve.yaml"
        path.write_text(text)
        started_as("--config", str(path), *words)
        return path

    yield write
    command_line._asked_of_command.cache_clear()


def test_configuration_file_is_the_author(file_of):
    file_of("enforce-eager: true\nport: 8000\n")
    assert intent_of(arguments(enforce_eager=True)) == {
        "mode": "NONE", "by": "--enforce-eager in the configuration file",
    }  # fmt: skip


def test_nested_configuration_file_names_a_mode(file_of):
    file_of("compilation_config:\n  cudagraph_mode: PIECEWISE\n")
    assert intent_of(arguments(cudagraph_mode="PIECEWISE")) == {"mode": "PIECEWISE"}


def test_command_line_overrides_the_file_without_parting(file_of):
    file_of("compilation-config: {cudagraph_mode: NONE}\n", "-cc.cudagraph_mode=FULL")
    assert intent_of(arguments(cudagraph_mode="FULL")) == {"mode": "FULL"}


def test_file_that_forces_eager_against_the_command_line_is_the_first_place(file_of):
    file_of("enforce-eager: true\n", "-cc.cudagraph_mode=FULL")
    intent = intent_of(arguments(enforce_eager=True, cudagraph_mode="FULL"))
    assert (intent["mode"], intent["by"]) == ("FULL", "--enforce-eager in the configuration file")
    assert intent["parted"] == "the command line says cudagraph_mode=FULL, the configuration file says --enforce-eager"


def test_file_is_read_where_engines_read_it(file_of, started_as):
    path = file_of("enforce-eager: true\n")
    started_as(f"--config={path}")
    assert intent_of(arguments()) == {}


@pytest.mark.parametrize("text", ["a: [", "- 1\n", "\x00", ""])
def test_unreadable_file_says_nothing(file_of, text):
    file_of(text)
    assert intent_of(arguments()) == {}


def test_file_too_large_or_gone_says_nothing(file_of):
    path = file_of("enforce-eager: true\n" + "#" * command_line.MAX_FILE_BYTES)
    assert intent_of(arguments()) == {}
    path.unlink()
    command_line._asked_of_command.cache_clear()
    assert intent_of(arguments()) == {}
    assert "the configuration file, which was not read" in intent_of(arguments(enforce_eager=True))["by"]


def test_variable_of_an_image_is_the_author(started_as, monkeypatch):
    monkeypatch.setenv("ENFORCE_EAGER", "True")
    assert intent_of(arguments()) == {}
    assert intent_of(arguments(enforce_eager=True))["by"] == "the variable ENFORCE_EAGER=true"


def test_wrapper_against_the_variable_is_the_place_where_they_part(started_as, monkeypatch):
    monkeypatch.setenv("ENFORCE_EAGER", "0")
    intent = intent_of(arguments(enforce_eager=True))
    assert (intent["mode"], "set by the calling code" in intent["by"]) == ("ENABLED", True)
    assert intent["parted"].startswith("the environment says ENFORCE_EAGER=0")


@pytest.fixture
def adapter(parts, stand_in, started_as, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "vllm")
    monkeypatch.setenv(vllm_asked.VARIABLE, "")
    stand_in("vllm_0_25")
    return parts.attach(VllmAdapter)


def made(turned_off_by_engine=False, **asked):
    from vllm.config.compilation import CUDAGraphMode
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(**asked).create_engine_config()
    if turned_off_by_engine:
        config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
        vllm_asked.remember(config, {}, ["DeepEP: Disabling CUDA Graphs"])
    return config


def test_place_where_they_part_is_the_reason_of_the_mode(adapter, started_as):
    started_as("--no-enforce-eager")
    made(enforce_eager=True)
    config = adapter.config()
    assert (config["requested_mode"], config["resolved_mode"]) == ("ENABLED", "NONE")
    assert config["mode_reason"].startswith("the command line says --no-enforce-eager, EngineArgs says")


@pytest.mark.parametrize(("switch", "who"), [(None, "vLLM itself"), ("1", "TORCH_COMPILE_DISABLE=1")])
def test_graphs_that_vllm_turned_off_were_not_asked_off(adapter, monkeypatch, switch, who):
    if switch:
        monkeypatch.setenv("TORCH_COMPILE_DISABLE", switch)
    adapter.learn(made(turned_off_by_engine=True))
    config = adapter.config()
    assert "requested_mode" not in config
    assert config["mode_reason"] == f"nothing asked for eager, {who} turned graphs off; DeepEP: Disabling CUDA Graphs"


def test_fallback_to_eager_mode_is_heard(adapter):
    with vllm_asked.Heard() as heard:
        logging.getLogger("vllm.x").warning("CUDA graph is not supported for x on ROCm yet, fallback to eager mode.")
    assert len(heard.texts) == 1


def test_file_and_variable_reach_the_configuration_as_authors(adapter, file_of, started_as, monkeypatch):
    file_of("enforce-eager: true\n")
    made(enforce_eager=True)
    assert adapter.config()["enforced_by"] == "--enforce-eager in the configuration file"
    started_as()
    monkeypatch.setenv("ENFORCE_EAGER", "1")
    made(enforce_eager=True)
    assert adapter.config()["enforced_by"] == "the variable ENFORCE_EAGER=1"
