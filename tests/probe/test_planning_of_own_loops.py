"""FlashInfer's planning beside a loop that no adapter knows."""

from __future__ import annotations

from pathlib import Path

from probe.harness import seen

DECODE = """
import time
class BatchDecodeWithPagedKVCacheWrapper:
    def plan(self): time.sleep(0.002)
"""
PROGRAM = """
import sys, time
import replaywatch.probe as probe; probe.start()
sys.path.insert(0, FOLDER)
from flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper
wrapper = BatchDecodeWithPagedKVCacheWrapper()
wrapper.plan()
for _ in range(3):
    probe.record_step("eager", batch=4)
    wrapper.plan()
time.sleep(0.3)
"""


def test_plans_count_once_a_loop_of_ones_own_has_made_a_step(tmp_path: Path) -> None:
    package = tmp_path / "flashinfer"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "decode.py").write_text(DECODE)
    window = seen(PROGRAM.replace("FOLDER", repr(str(tmp_path))), tmp_path)
    assert window.timing.host_plan is not None
    assert window.timing.host_plan.count == 3
