"""Situations composed from what the probe sent out of engines (tests/data/live), as `composed` does from the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from detectors.live import SECOND
from replaywatch.agent.contradiction import Contradictions
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Dispatch, GraphMemory
from replaywatch.detectors.evidence import Evidence, gather
from score import engines
from score.composed import NOBODY, situation
from score.engines import Part, decoding, replayed
from score.situation import Situation

READINGS = 6  # a witness is set against the probe at its fifth reading at the earliest


def situations() -> Iterator[Situation]:
    """Every one of them, judged."""
    for compose in (sizes, switches, unlike_witnesses, growing_pools, changed_environments):
        yield from compose()


def _gathered(part: Part, config: EngineConfig | None = None) -> Evidence:
    windows, fingerprints, configs = part
    found = gather(windows, fingerprints=fingerprints, configs=configs)
    return found if config is None else replace(found, config=config)


def _config_of(part: Part) -> EngineConfig:
    windows, _, configs = part
    return configs[next(w.config_id for w in windows if w.config_id in configs) or ""]


def sizes() -> Iterator[Situation]:
    """`exact_sizes` and `low_load`: recorded batches of vLLM. Imposed: padding switched off, other captured sizes."""
    for recording in ("vllm-default", "vllm-tensor-parallel"):
        for part in engines.parts(recording, decoding):
            config = _config_of(part)
            for name, changed, told in (
                ("no padding", replace(config, padding=False), {"exact_sizes"}),
                ("no padding, all sizes", replace(config, padding=False, capture_sizes=tuple(range(1, 65))), set()),
                ("sizes from 64 on", replace(config, capture_sizes=(64, 128)), {"low_load"}),
                ("sizes from 16 on", replace(config, capture_sizes=(16, 32, 64, 128)), set()),
            ):
                rank = part[0][0].workload.rank
                who = f"{recording}, rank {rank}" if rank is not None else recording
                yield situation(f"sizes/{who}, {name}", _gathered(part, changed), frozenset(told))


def switches() -> Iterator[Situation]:
    """`environment_switches`: recorded windows of vLLM. Imposed: a variable of their process's environment."""
    for recording in ("vllm-default", "vllm-tensor-parallel"):
        part = next(engines.parts(recording, decoding))
        config = _config_of(part)
        for name, value, told in (
            ("TORCH_COMPILE_DISABLE", "1", {"environment_switches"}),
            ("CUDA_LAUNCH_BLOCKING", "1", {"environment_switches"}),
            ("TORCH_COMPILE_DISABLE", "0", set()),
            ("CUDA_MODULE_LOADING", "LAZY", set()),
        ):
            changed = replace(config, environment={name: value})
            yield situation(f"switches/{recording}, {name}={value}", _gathered(part, changed), frozenset(told))


def unlike_witnesses() -> Iterator[Situation]:
    """`contradiction`: the agent's own comparison of recorded windows with an engine's counts, which are imposed.

    The counts are the recorded ones, or have three steps in ten the other way.
    """
    for recording in ("vllm-default", "vllm-eager", "vllm-tensor-parallel"):
        part = next(engines.parts(recording, decoding))
        recent = gather(part[0]).recent
        steps = {"eager": 0, "full": 0, **(recent.dispatch.steps or {})}
        moved = int(0.3 * sum(steps.values()))
        moved = moved if steps["eager"] < moved else -moved
        for name, counted in (
            ("agrees", steps),
            ("tells of others", {**steps, "eager": steps["eager"] + moved, "full": steps["full"] - moved}),
        ):
            book, told = Contradictions(), None
            witness = replace(recent, origin="metrics", dispatch=Dispatch(steps=counted), traced=None)
            for _ in range(READINGS):
                (told,) = book.against("metrics", [witness])
                book.hear_probe(part[0], part[2])
            windows = [*part[0][:-1], replace(part[0][-1], observations=(told,) if told is not None else ())]
            expected = {"contradiction"} if name != "agrees" else set()
            lost = {"disabled"} if recording == "vllm-eager" else set()
            yield situation(
                f"witnesses/{recording}, the engine {name}",
                _gathered((windows, part[1], part[2])),
                frozenset(expected | lost),
            )


def growing_pools() -> Iterator[Situation]:
    """`graph_memory_growth`: an hour of a recorded window, one a half minute; imposed is how its graph memory grows.

    By 64 MB and a capture every 3, 6 or 10 minutes; in the controls only during the first nine, or not at all.
    """
    for recording in ("vllm-default", "transformers-generate"):
        part = next(engines.parts(recording, replayed if recording != "vllm-default" else decoding))
        one = max(part[0], key=lambda w: w.dispatch.replays or 0)
        pool = max((w.memory.pool_bytes or 0) for w in part[0])
        for name, every_s, until_s, told in (
            ("every 3 minutes", 180, 3600, True),
            ("every 6 minutes", 360, 3600, True),
            ("every 10 minutes", 600, 3600, True),
            ("every minute at the start", 60, 540, False),
            ("never", 3600, 0, False),
        ):
            windows = []
            for at_s in range(30, 3601, 30):
                grown = min(at_s, until_s) // every_s
                captured = 1 if at_s <= until_s and at_s % every_s == 0 else 0
                windows.append(
                    replace(
                        one,
                        start_ns=(at_s - 30) * SECOND,
                        end_ns=at_s * SECOND,
                        dispatch=replace(one.dispatch, captures={"ok": captured}),
                        memory=GraphMemory(pool_bytes=pool + grown * (64 << 20)),
                        traced=None,
                    )
                )
            expected = frozenset({"graph_memory_growth"}) if told else NOBODY
            allowed = frozenset({"replay_gap"})
            yield situation(f"pools/{recording}, more {name}", _gathered((windows, *part[1:])), expected, allowed)


def changed_environments() -> Iterator[Situation]:
    """`stale_environment`: recorded windows in their order; from the middle on another fingerprint is imposed.

    In the controls graphs were captured at that moment, or the value only became known.
    """
    for recording, keep in (
        ("vllm-default", decoding),
        ("vllm-tensor-parallel", decoding),
        ("transformers-generate", replayed),
    ):
        windows, fingerprints, configs = next(engines.parts(recording, keep))
        middle = len(windows) // 2
        before_id = next(w.fingerprint_id for w in windows if w.fingerprint_id in fingerprints) or ""
        known = fingerprints[before_id]
        for name, before, after, captured, told in (
            ("driver", known, replace(known, driver="590.44.01"), 0, True),
            ("torch", known, replace(known, torch="2.12.0+cu130"), 0, True),
            ("device", known, replace(known, gpu_model="NVIDIA B200"), 0, True),
            ("driver, captured again", known, replace(known, driver="590.44.01"), 100, False),
            ("driver that became known", replace(known, driver=None), known, 0, False),
            ("nothing", known, known, 0, False),
        ):
            made = []
            for i, w in enumerate(windows):
                captures = {"ok": captured if i == middle else 0}
                made.append(
                    replace(
                        w,
                        fingerprint_id=before.id if i < middle else after.id,
                        dispatch=replace(w.dispatch, captures=captures),
                    )
                )
            evidence = gather(made, fingerprints={before.id: before, after.id: after}, configs=configs)
            expected = frozenset({"stale_environment"}) if told else NOBODY
            yield situation(f"changed/{recording}, {name}", evidence, expected, frozenset({"replay_gap"}))
