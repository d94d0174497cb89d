"""The plugin in a process of its own: from the engine's entry point to frames that the contract decodes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from probe.engines.conftest import STAND_INS
from replaywatch.contract.wire import decode

ROOT = Path(__file__).resolve().parents[3]
ENGINE = """
from replaywatch.probe.engines.plugin import start_in_engine
start_in_engine(); start_in_engine()
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.worker import gpu_model_runner
from probe.engines.batches import decode, scheduled
config = EngineArgs(sizes=(1, 2, 4), max_num_seqs=32).create_engine_config()
runner = gpu_model_runner.GPUModelRunner(config)
for batch in [decode(3)] * 20 + [decode(9)] * 5 + [scheduled(40)]:
    runner.execute_model(batch)
runner.capture_model()
"""


@pytest.fixture
def agent(tmp_path):
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "agent.sock"))
    listening.settimeout(5)
    yield listening
    listening.close()


def run(agent, code=ENGINE, stand_in="vllm_0_25", **environment):
    paths = [str(ROOT / "agent"), str(ROOT / "tests"), str(STAND_INS / stand_in)]
    given = {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "REPLAYWATCH_PROBE_SOCKET": agent.getsockname(),
        "REPLAYWATCH_PROBE_KERNELS": "0", **environment,
    }  # fmt: skip
    return subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, timeout=60)


def received(agent):
    agent.settimeout(0.3)
    batches = []
    while True:
        try:
            batches.append(decode(agent.recv(1 << 17)))
        except TimeoutError:
            return batches


def test_steps_reasons_and_configuration_arrive_at_the_agent(agent):
    done = run(agent)
    assert done.returncode == 0, done.stderr
    batches = received(agent)
    windows = [w for b in batches for w in b.windows]
    main = [w for w in windows if w.workload.phase is None]
    assert sum((w.dispatch.steps or {}).get("full", 0) for w in main) == 20
    assert sum((w.dispatch.fallbacks or {}).get("above_ceiling", 0) for w in main) == 5
    assert sum(w.timing.step_by_mode["full"].count for w in main if w.timing.step_by_mode) >= 17
    prefill = [w for w in windows if w.workload.phase == "prefill"]
    assert prefill[0].dispatch.fallbacks == {"prefill_by_design": 1}
    assert {w.workload.engine for w in windows} == {"vllm"}
    assert main[0].workload.model_name == "tiny"
    config = next(c for b in batches for c in b.configs.values() if c.resolved_mode)
    assert (config.capture_sizes, config.max_batch_size) == ((1, 2, 4), 32)
    assert not [b for w in windows for b in w.blind if b.signal.startswith("vllm")]


def test_switched_off_probe_leaves_the_engine_alone(agent):
    done = run(agent, REPLAYWATCH_PROBE="0")
    assert done.returncode == 0, done.stderr
    assert received(agent) == []


def test_engine_goes_on_without_the_package(agent):
    code = "import sys; sys.modules['replaywatch.probe.session'] = None\n" + ENGINE
    done = run(agent, code)
    assert done.returncode == 0, done.stderr
    assert "the probe was not started" in done.stderr
