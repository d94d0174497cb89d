"""Every detector, in the order of reports."""

from __future__ import annotations

from typing import Final

from replaywatch.detectors.capture_failed import CaptureFailed
from replaywatch.detectors.compile_mode import CompileMode
from replaywatch.detectors.contention import Contention, SlowDevice
from replaywatch.detectors.contradiction import Contradiction
from replaywatch.detectors.copy_bound import CopyBound
from replaywatch.detectors.detector import Detector
from replaywatch.detectors.disabled import Disabled
from replaywatch.detectors.downgrade import Downgrade
from replaywatch.detectors.dropped_sizes import DroppedSizes
from replaywatch.detectors.environment_switches import EnvironmentSwitches
from replaywatch.detectors.exact_sizes import ExactSizes
from replaywatch.detectors.failing_calls import FailingCalls, ReplayStuck
from replaywatch.detectors.fallbacks import Fallbacks
from replaywatch.detectors.fragmented import Fragmented
from replaywatch.detectors.graph_memory_growth import GraphMemoryGrowth
from replaywatch.detectors.harmful import Harmful
from replaywatch.detectors.host_planning import HostPlanning
from replaywatch.detectors.idle_pools import IdlePools
from replaywatch.detectors.low_load import LowLoad
from replaywatch.detectors.odd_one_out import OddOneOut
from replaywatch.detectors.overflow import Overflow
from replaywatch.detectors.padding import Padding
from replaywatch.detectors.partial_coverage import PartialCoverage
from replaywatch.detectors.replay_gap import ReplayGap
from replaywatch.detectors.skipped import Skipped
from replaywatch.detectors.slow_launch import SlowLaunch
from replaywatch.detectors.stale_environment import StaleEnvironment
from replaywatch.detectors.start_up import GraphMemoryEstimate, SlowCapture
from replaywatch.detectors.sudden import Sudden
from replaywatch.detectors.thrash import Thrash
from replaywatch.detectors.unamortised import Unamortised
from replaywatch.detectors.unused_graphs import UnusedGraphs

DETECTORS: Final[tuple[Detector, ...]] = (
    Disabled(),
    PartialCoverage(),
    Downgrade(),
    Overflow(),
    Fallbacks(),
    ReplayGap(),
    CopyBound(),
    Harmful(),
    Padding(),
    Thrash(),
    Skipped(),
    CaptureFailed(),
    UnusedGraphs(),
    FailingCalls(),
    ReplayStuck(),
    SlowCapture(),
    GraphMemoryEstimate(),
    ExactSizes(),
    CompileMode(),
    EnvironmentSwitches(),
    Contradiction(),
    OddOneOut(),
    Sudden(),
    Fragmented(),
    HostPlanning(),
    SlowLaunch(),
    Contention(),
    SlowDevice(),
    GraphMemoryGrowth(),
    StaleEnvironment(),
    Unamortised(),
    LowLoad(),
    IdlePools(),
    DroppedSizes(),
)
