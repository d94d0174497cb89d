"""What each workload of a public case should give, for counting; tests/score/test_cases.py checks the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import judge
from score import cases
from score.situation import Situation

Names = tuple[str, ...]
# Per workload of the case, in its order: what should be said. One entry stands for all workloads.
LABELS: dict[str, tuple[Names, ...]] = {
    "case_1_forced_by_a_wrapper": (("disabled",),),
    "case_2_two_stages_eager": (("disabled",), ("disabled",), ()),
    "case_3_ceiling_that_absorbs": (("overflow",),),
    "case_4_ranks_are_summed": (("overflow",),),
    "case_5_only_the_peak_size": (("overflow",),),
    "case_6_draft_never_replayed": (("unused_graphs",), ()),
    "case_7_cache_full": (("sudden",),),
    "case_8_idle_rank_eager": (("fallbacks",),),
    "case_9_downgrade": (("downgrade", "partial_coverage"),),
    "case_10_skipped_without_a_reason_seen": (("skipped",),),
    "case_11_said_on_every_call": (("skipped",),),
    "case_12_recapture_each_iteration": (("thrash",),),
    "case_13_failed_capture_keeps_its_pool": (("capture_failed", "idle_pools"),),
    "case_14_launch_slower_after_an_upgrade": (*[()] * 6, *[("slow_launch",)] * 6),
    "case_15_idle_between_replays": (("replay_gap",),),
    "case_16_padded_to_the_next_size": (("padding",),),
    "case_17_memory_under_reserved": (("graph_memory_estimate", "dropped_sizes"),),
    "case_18_slow_capture_of_a_role": (("slow_capture",), ()),
    "case_19_replay_never_ends": (("replay_stuck",),),
    "case_20_launch_errors_swallowed": (("failing_calls",),),
    "case_21_gaps_that_are_none": ((),),
    "case_22_eager_on_purpose": ((),),
    "case_23_another_profiler": ((),),
    "case_24_llama_cpp_for_ever": (("disabled",),),
}


def situations() -> Iterator[Situation]:
    """Every workload of every case, judged."""
    for name, labels in LABELS.items():
        build: Callable[[], list[Evidence]] = getattr(cases, name)
        members = build()
        expected = labels * len(members) if len(labels) == 1 else labels
        for evidence, names in zip(members, expected, strict=True):
            yield Situation(f"{name}/{evidence.workload.label}", "case", judge(evidence), frozenset(names), group=name)
