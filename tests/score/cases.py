"""Reports that people filed, rebuilt as what the probe, the log or a trace would have shown of them.

Numbers are the reporters'; who, where and what must come out is in each docstring. Each builder gives the evidence of
every workload that matters, as a collector would have it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory

from detectors.live import Moment, stream
from detectors.made import MS, eager_work, evidence, replayed_work, window
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import (
    BlindSpot,
    Dispatch,
    GraphMemory,
    Observation,
    Timing,
    Window,
    Workload,
    merge_windows,
)
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.figures import figures_of
from replaywatch.detectors.peers import Member, cohort_key, family_key, summaries
from replaywatch.detectors.sudden_state import SuddenState, advance
from replaywatch.sources.reader import read

H200 = Fingerprint(gpu_model="NVIDIA H200", driver="580", cuda="13.0", torch="2.11", engine="vllm", model_name="m")
FULL = EngineConfig(
    engine="vllm", requested_mode="FULL_AND_PIECEWISE", resolved_mode="FULL_AND_PIECEWISE", graphs_enabled=True
)


def times(ms: float, n: int) -> Histogram:
    """Equal durations."""
    return Histogram.of([round(ms * MS)] * n)


def with_peers(members: list[Evidence]) -> list[Evidence]:
    """Evidence of a fleet that knows its peers."""
    keys = [cohort_key(e.fingerprint, e.config, e.workload) or "" for e in members]
    families = [family_key(e.fingerprint, e.config, e.workload) for e in members]
    known = summaries(Member(k, f, figures_of(e.recent)) for k, f, e in zip(keys, families, members, strict=True) if k)
    return [replace(e, peers=known.get(k)) for k, e in zip(keys, members, strict=True)]


def log_evidence(text: str, name: str = "engine.log") -> list[Evidence]:
    """Evidence in the lines of a log, read as `replaywatch analyze` reads it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        recording = read(path)
    by_key: dict[str, list[Window]] = {}
    for one in recording.windows:
        by_key.setdefault(one.workload.key, []).append(one)
    return [
        gather(ws, fingerprints=recording.fingerprints, configs=recording.configs, is_recording=True)
        for ws in by_key.values()
    ]


def case_1_forced_by_a_wrapper() -> list[Evidence]:
    """scaleapi/llm-engine#851: a wrapper forced eager mode on every endpoint and overwrote the user's setting."""
    config = replace(FULL, resolved_mode="NONE", graphs_enabled=False, enforced_by="enforce_eager set by a wrapper")
    made = []
    for i in range(12):
        who = Workload(pod=f"endpoint-{i}", engine="vllm", phase="decode")
        work = eager_work(step_ms=11.8 + 0.05 * i)
        one = window(
            workload=who,
            traced=work,
            dispatch=Dispatch(steps={"eager": 4000}, batch_sizes={8: 4000}, fallbacks={"forced_eager": 4000}),
            timing=Timing(step_period=times(11.8 + 0.05 * i, 4000)),
        )
        made.append(replace(evidence(one, config=config), fingerprint=H200))
    return with_peers(made)


def case_2_two_stages_eager() -> list[Evidence]:
    """vllm-project/vllm-omni#7960: a bundled YAML ran two of the stages eager, 4 to 5 times slower."""
    made = []
    for stage, is_eager in (("thinker", True), ("talker", True), ("code2wav", False)):
        work = eager_work(step_ms=12, busy_ms=2.6) if is_eager else replayed_work()
        who = Workload(pod="omni-0", engine="vllm", component=stage)
        config = replace(FULL, graphs_enabled=False, resolved_mode="NONE", requested_mode="NONE") if is_eager else FULL
        made.append(evidence(window(workload=who, traced=work), config=config))
    return made


def _sglang(ladder: int, admitted: int) -> EngineConfig:
    sizes = tuple(s for s in (1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256) if s <= ladder)
    return EngineConfig(
        engine="sglang", graphs_enabled=True, capture_sizes=sizes, capture_unit="sequences", max_batch_size=admitted
    )


def case_3_ceiling_that_absorbs() -> list[Evidence]:
    """sglang#33483 and #33900: ceiling 32, admission 4096; past 32 eager, four times a token, and never back.

    First the service before any traffic, then past its ceiling: median batch 67, all steps eager.
    """
    config = _sglang(32, 4096)
    idle = evidence(window(workload=Workload(pod="sgl", engine="sglang"), origin="log"), config=config)
    sizes = {45: 200, 60: 500, 67: 900, 80: 300, 96: 100}
    eager = times(20.0, 2000)
    past = window(
        workload=Workload(pod="sgl", engine="sglang", phase="decode"),
        seconds=120,
        dispatch=Dispatch(
            steps={"full": 0, "eager": 2000},
            batch_sizes=sizes,
            eager_batch_sizes=sizes,
            fallbacks={"above_ceiling": 2000},
        ),
        timing=Timing(step_period=eager, step_by_mode={"eager": eager}),
    )
    before = window(
        workload=past.workload,
        dispatch=Dispatch(steps={"full": 9000, "eager": 0}, batch_sizes={23: 9000}),
        timing=Timing(step_by_mode={"full": times(5.0, 9000)}),
    )
    lived = merge_windows(before, past)
    return [idle, Evidence(workload=past.workload, recent=past, lifetime=lived, config=config)]


def case_4_ranks_are_summed() -> list[Evidence]:
    """THUDM/slime#77, sglang#5527: sizes of data-parallel ranks are summed, 400 above the ceiling of 256."""
    config = replace(_sglang(256, 256), data_parallel_size=8)
    eager, full = times(15.0, 1200), times(4.0, 800)
    one = window(
        workload=Workload(pod="rl", engine="sglang", rank=0, phase="decode"),
        dispatch=Dispatch(
            steps={"full": 800, "eager": 1200},
            batch_sizes={200: 800, 400: 1200},
            eager_batch_sizes={400: 1200},
            fallbacks={"above_ceiling": 1200},
        ),
        timing=Timing(step_by_mode={"full": full, "eager": eager}),
    )
    return [evidence(one, config=config)]


def case_5_only_the_peak_size() -> list[Evidence]:
    """vllm#40734: sizes end below the peak batch, which runs eager; all others are captured."""
    sizes = (1, 2, 4, *range(8, 505, 8))
    config = replace(FULL, capture_sizes=sizes, capture_unit="sequences", max_batch_size=510)
    eager, full = times(21.0, 600), times(7.0, 9400)
    one = window(
        workload=Workload(pod="peak", engine="vllm", phase="decode"),
        dispatch=Dispatch(
            steps={"full": 9400, "eager": 600},
            batch_sizes={96: 3000, 256: 4000, 400: 2400, 510: 600},
            eager_batch_sizes={510: 600},
            fallbacks={"above_ceiling": 600},
        ),
        timing=Timing(step_by_mode={"full": full, "eager": eager}),
    )
    return [evidence(one, config=config)]


def case_6_draft_never_replayed() -> list[Evidence]:
    """vllm#47460: graphs of the draft model are captured and never replayed; the target's are."""
    draft = window(
        workload=Workload(pod="spec", engine="vllm", component="draft"),
        dispatch=Dispatch(captures={"ok": 51}, replays=0, steps={"eager": 3000}),
    )
    target = window(
        workload=Workload(pod="spec", engine="vllm", component="target"),
        dispatch=Dispatch(captures={"ok": 67}, replays=3000, steps={"full": 3000}),
    )
    return [evidence(draft), evidence(target)]


def _followed(windows: list[Window], config: EngineConfig | None = None) -> Evidence:
    recent = gather(windows[-12:])
    return replace(recent, sudden=reduce(advance, windows, SuddenState()), config=config)


def case_7_cache_full() -> list[Evidence]:
    """TensorRT-LLM#16072: once the cache of graphs is full, padded batches run eager for the rest of the process."""

    def full(moment: Moment) -> Moment:
        return replace(moment, eager_ratio=0.6, step_ms=moment.step_ms * 1.9, reason="no_matching_graph")

    who = Workload(pod="trt", engine="trtllm", phase="decode")
    calm = list(stream(1800, 1, batch=lambda s, r: 12.0, who=who))
    after = list(stream(30, 1, batch=lambda s, r: 12.0, start_s=1800, faults={0.0: full}, who=who))
    return [_followed([*calm, *after])]


def case_8_idle_rank_eager() -> list[Evidence]:
    """vllm#24963: idle ranks run an eager dummy batch; the busy ranks wait, 137.6 against 31.7 ms between tokens."""
    eager, full = times(137.6, 500), times(31.7, 500)
    busy = window(
        workload=Workload(pod="dp", engine="vllm", rank=0, phase="decode"),
        dispatch=Dispatch(steps={"full": 500, "eager": 500}, fallbacks={"ranks_disagree": 500}, batch_sizes={16: 1000}),
        timing=Timing(step_by_mode={"full": full, "eager": eager}),
    )
    idle = window(
        workload=Workload(pod="dp", engine="vllm", rank=1, phase="decode"),
        dispatch=Dispatch(steps={"eager": 500, "full": 500}, fallbacks={}),
        observed=(Observation("idle_rank_eager", "an idle rank runs its dummy batch eager", 500),),
    )
    return [evidence(busy, config=FULL), evidence(idle, config=FULL)]


def case_9_downgrade() -> list[Evidence]:
    """vllm#32936: FULL_AND_PIECEWISE resolved to PIECEWISE, FlashInfer with speculative decoding."""
    reason = "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInfer"
    config = replace(FULL, resolved_mode="PIECEWISE", mode_reason=reason, speculative_tokens=3)
    work = replace(
        eager_work(step_ms=4.4, busy_ms=2.1, kernels=500), graph_launches=8 * 23, graph_kernels=8 * 400,
        eager_kernels=8 * 100, launches=8 * 100, total_graph_kernels=8 * 400, method="cupti", runtime_calls=0,
    )  # fmt: skip
    return [evidence(window(traced=work, dispatch=Dispatch(steps={"piecewise": 1000})), config=config)]


_INDUCTOR = "W1129 17:37:{s:02d}.539000 10894 torch/_inductor/cudagraph_utils.py:380] [0/0] [__cudagraphs] {text}\n"


def case_10_skipped_without_a_reason_seen() -> list[Evidence]:
    """pytorch#124506, #149944: graphs are skipped, and nobody sees why."""
    text = "skipping cudagraphs due to cpu device (arg0_1). Found from :"
    return log_evidence("".join(_INDUCTOR.format(s=s, text=text) for s in range(3)))


def case_11_said_on_every_call() -> list[Evidence]:
    """nari-labs/dia#162: "mutated inputs (36 instances)" on every call."""
    text = "skipping cudagraphs due to mutated inputs (36 instances). Found from :"
    return log_evidence("".join(_INDUCTOR.format(s=s, text=text) for s in range(40)))


def case_12_recapture_each_iteration() -> list[Evidence]:
    """pytorch#188913, #196385, #171672: a capture each iteration; 27 iterations a second become 2."""
    one = window(
        dispatch=Dispatch(
            captures={"ok": 120}, replays=120, instantiations=120, destroys=119, steps={"full": 120}, live_graphs=1
        ),
        timing=Timing(step_period=times(490, 120), capture=times(380, 120), instantiate=times(60, 120)),
    )
    return [evidence(one)]


def case_13_failed_capture_keeps_its_pool() -> list[Evidence]:
    """pytorch#190308: a failed capture keeps its pool for good."""
    one = window(
        dispatch=Dispatch(captures={"ok": 12, "failed": 3}, replays=400, steps={"full": 400}),
        memory=GraphMemory(pool_bytes=3 << 30, unused_bytes=1 << 30),
        observed=(Observation("capture_failed", "operation not permitted when stream is capturing"),),
    )
    return [evidence(one)]


def case_14_launch_slower_after_an_upgrade() -> list[Evidence]:
    """pytorch#174575: a graph launch itself takes seven times longer after an upgrade."""
    made = []
    for version, launch_us in (("2.9", 9.0), ("2.10", 63.0)):
        for i in range(6):
            one = window(
                workload=Workload(pod=f"v{version}-{i}", engine="torch"),
                dispatch=Dispatch(steps={"full": 4000}, replays=4000, batch_sizes={4: 4000}),
                timing=Timing(
                    step_period=times(0.50 + launch_us / 1000, 4000),
                    graph_launch_call=Histogram.of([round(launch_us * 1000)] * 4000),
                ),
            )
            made.append(replace(evidence(one), fingerprint=replace(H200, torch=version)))
    return with_peers(made)


def case_15_idle_between_replays() -> list[Evidence]:
    """sglang#5593: 2 ms of idle between replays; gllm#148: 20 to 30 ms. Coverage is near 1."""
    short = replace(replayed_work(step_ms=4.6, busy_ms=2.3), method="cupti", replay_gap_ns=8 * 2 * MS)
    long = replace(replayed_work(step_ms=38.0, busy_ms=11.0), method="cupti", replay_gap_ns=8 * 25 * MS)
    return [evidence(window(traced=short)), evidence(window(traced=long))]


def case_16_padded_to_the_next_size() -> list[Evidence]:
    """vllm#12920, TensorRT-LLM#12895: a batch of 9 is padded to 16, 55 against 44 ms."""
    config = replace(FULL, capture_sizes=(1, 2, 4, 8, 16, 32), capture_unit="sequences", padding=True)
    one = window(
        workload=Workload(pod="pad", engine="vllm", phase="decode"),
        dispatch=Dispatch(
            steps={"full": 2000}, batch_sizes={9: 2000}, real_tokens=18_000, padded_tokens=32_000, replays=2000
        ),
        timing=Timing(step_period=times(55, 2000)),
    )
    return [evidence(one, config=config)]


def case_17_memory_under_reserved() -> list[Evidence]:
    """vllm#57475, #30515: graph memory was under-reserved, and sizes were capped to fit."""
    one = window(
        origin="log",
        memory=GraphMemory(pool_bytes=2_400 << 20, estimated_bytes=400 << 20),
        observed=(Observation("sizes_dropped", "capture sizes above 256 were dropped to fit: 272, 288, ... 512"),),
    )
    return [evidence(one, config=FULL)]


def case_18_slow_capture_of_a_role() -> list[Evidence]:
    """sglang#10088: the draft's capture takes 62.7 s, the target's 12.1 s."""
    made = []
    for component, seconds in (("draft", 62.7), ("target", 12.1)):
        who = Workload(pod="spec", engine="sglang", component=component)
        made.append(evidence(window(workload=who, origin="log", timing=Timing(capture=times(seconds * 1000, 1)))))
    return made


def case_19_replay_never_ends() -> list[Evidence]:
    """pytorch#196133, flashinfer#3053: a replay never ends while launches return success."""
    told = Observation("replay_stuck", "graph 0x7f2a (batch 32) has run for 41 s", 1, "watchdog")
    return [evidence(window(dispatch=Dispatch(steps={"full": 900}, replays=900), observed=(told,)))]


def case_20_launch_errors_swallowed() -> list[Evidence]:
    """beehive-lab/TornadoVM#1006: a launch returns 700 and nobody looks; 4.5 instead of 450 frames a second."""
    one = window(dispatch=Dispatch(replays=270, failed_calls={"cudaErrorIllegalAddress": 268}))
    return [evidence(one)]


def case_21_gaps_that_are_none() -> list[Evidence]:
    """ROCm, AMD-AGI/TraceLens#728: a tool reported 26 % idle where the device was 99 % busy."""
    work = replace(replayed_work(step_ms=10.0, busy_ms=9.9, kernels=420), method="roctracer", gaps_are_evidence=False)
    return [evidence(window(traced=work), is_recording=True)]


def case_22_eager_on_purpose() -> list[Evidence]:
    """sglang#2360, vLLM on a T4: no difference without graphs, and eager was asked for."""
    config = replace(FULL, requested_mode="NONE", resolved_mode="NONE", graphs_enabled=False, enforced_by="a flag")
    work = replace(eager_work(step_ms=42.0, busy_ms=41.2, kernels=700), method="cupti")
    return [evidence(window(traced=work, dispatch=Dispatch(steps={"eager": 1400})), config=config)]


def case_23_another_profiler() -> list[Evidence]:
    """kineto#1165, pytorch#150957: profilers and graphs disturb each other; the probe yields and says so."""
    spot = BlindSpot("kernels", "torch.profiler runs in this process; kernels are not traced meanwhile")
    return [evidence(window(blind=(spot,)))]


def case_24_llama_cpp_for_ever() -> list[Evidence]:
    """ggml-org/llama.cpp#19754, #19345: graphs are disabled for ever after four updates in a row."""
    lines = (
        "ggml_cuda_init: found 1 CUDA devices:\n"
        "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes\n"
        "main: server is listening on 127.0.0.1:8080 - starting the main loop\n"
        + "ggml_backend_cuda_graph_compute: CUDA graph update failed\n" * 4
        + "ggml_backend_cuda_graph_compute: disabling CUDA graphs due to too many consecutive updates\n"
    )
    return log_evidence(lines)
