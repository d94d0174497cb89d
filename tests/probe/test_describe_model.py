"""What a loop of one's own says of its model reaches the configuration, and can do no harm."""

from __future__ import annotations

from pathlib import Path

from probe.harness import Listener, Pump, run
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.wire import decode

HEAD = """
import time
import replaywatch.probe as probe
class Parameter:
    def numel(self): return 1000
    def element_size(self): return 2
class Config: num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim = 3, 8, 2, 16
class Model:
    config = Config()
    def parameters(self): return [Parameter(), Parameter()]
probe.start()
"""
TAIL = """
for _ in range(5):
    probe.record_step("eager", batch=4); time.sleep(0.05)
"""


def told(code: str, folder: Path) -> tuple[EngineConfig, int]:
    """The last configuration that a program's probe sent, and how often the probe failed."""
    with Listener(folder / "agent.sock") as listener:
        pump = Pump(listener)
        run(HEAD + code + TAIL, listener)
        batches = [decode(frame) for frame in pump.stop()]
    configs = [config for batch in batches for config in batch.configs.values()]
    return configs[-1], sum(w.cost.errors for b in batches for w in b.windows if w.cost)


def test_numbers_are_told_and_go_before_what_is_counted(tmp_path: Path) -> None:
    config, errors = told("probe.describe_model(Model(), layers=7)", tmp_path)
    assert (config.weight_bytes, config.layers, config.cache_bytes_per_token) == (4000, 7, 3 * 2 * 2 * 16 * 2)
    assert errors == 0


def test_steps_of_a_loop_of_ones_own_tell_how_long_their_sequences_are(tmp_path: Path) -> None:
    code = """
for at in range(3):
    probe.record_step("eager", batch=4, context_tokens=4000 + at)
probe.record_step("eager", batch=4, phase="prefill", context_tokens=9000)
probe.record_step("eager", context_tokens=9000)
probe.record_step("eager", batch=4, context_tokens=-1)
"""
    with Listener(tmp_path / "agent.sock") as listener:
        pump = Pump(listener)
        run(HEAD + code + TAIL, listener)
        batches = [decode(frame) for frame in pump.stop()]
    windows = [w for b in batches for w in b.windows]
    told = [w.dispatch for w in windows if w.dispatch.context_tokens is not None]
    assert (sum(d.context_tokens or 0 for d in told), sum(d.context_sequences or 0 for d in told)) == (12_003, 12)
    assert sum((w.dispatch.steps or {}).get("eager", 0) for w in windows) == 3 + 1 + 1 + 5
    assert "context_tokens cannot be -1" in {b.reason.rpartition(": ")[2] for w in windows for b in w.blind}


def test_only_what_is_given_is_told(tmp_path: Path) -> None:
    config, _ = told("probe.describe_model(weight_bytes=10, layers=0, cache_bytes_per_token=1 << 70)", tmp_path)
    assert (config.weight_bytes, config.layers, config.cache_bytes_per_token) == (10, None, None)


def test_a_thing_that_is_no_model_fails_quietly(tmp_path: Path) -> None:
    class_of_one_fault = "class Bad:\n    def parameters(self): raise RuntimeError('no')\nprobe.describe_model(Bad())"
    config, errors = told(class_of_one_fault, tmp_path)
    assert config.weight_bytes is None
    assert errors == 1


def test_without_a_running_probe_nothing_happens(tmp_path: Path) -> None:
    config, errors = told("probe.stop(); probe.describe_model(layers=3); probe.start()", tmp_path)
    assert (config.layers, errors) == (None, 0)
