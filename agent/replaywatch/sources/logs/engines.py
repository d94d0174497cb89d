"""Which engine a line comes from, and who reads its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from replaywatch.contract.window import Engine
from replaywatch.sources.logs import inductor, llama_cpp, sglang, tgi, transformers, trtllm, vllm
from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

Reader = Callable[[LogLine, EngineRun], bool]

# Only lines with one of these words can say something; the others are passed over unread.
INTERESTING = re.compile(
    r"[Gg]raph|GRAPH| batch,|server_args=|config: |non-default args|Error|[Ee]xception|Interrupt|Traceback|[Dd]ied"
    r"|crash|[Ss]eg(?:fault|mentation)|SIG(?:TERM|INT|QUIT|KILL)|[Ss]hut|[Mm]emory|[Vv]ersion|startup complete|fired up"
    r"|init engine|throughput|Captur|max_running_requests|max_batch_size|LLM|llama|ggml|GGML|TRT|text_generation"
    r"|[Bb]ackend|Model Runner|torch\.compile|distinct sizes|exit ?code|signal|build: |Device \d|host_step_time"
    r"|model_id|%\||\|\s*\d+\s*\||Load(?:ing weights| weight)|Model loading|to load model"
    r"|listening|slots are idle|Connected|shard|Uvicorn|Init torch|function="
    r"|general\.name|Mode: |Warming|Starting|profiling|aborted|Args \{"
)
_STYLES: Mapping[str, Engine] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
    "tgi": "tgi",
    "llama.cpp": "llama.cpp",
}
_SIGNS: tuple[tuple[re.Pattern[str], Engine], ...] = (
    (
        re.compile(
            r"LLM engine \(v|vLLM (?:API server )?version|non-default args: \{|Graph capturing finished in"
            r"|\| Unpadded Tokens|CUDAGraphMode\.|Running batch with cudagraph_mode|\[vllm[./]|Avg prompt throughput: "
        ),
        "vllm",
    ),
    (
        re.compile(
            r"server_args=(?:ServerArgs\(|\{)|^(?:Decode|Prefill) batch\b|Capture \w+ \w+ CUDA graph"
            r"|Capture (?:[\w-]+ )*cuda graph"
            r"|\bsglang\b"
        ),
        "sglang",
    ),
    (re.compile(r"tensorrt_llm|TensorRT[- ]LLM version|\[TRT-LLM\]|generation[- ]only CUDA graph warmup"), "trtllm"),
    (
        re.compile(
            r"text_generation_(?:launcher|router)|Cuda Graphs are (?:enabled|disabled)|Using default cuda graphs"
        ),
        "tgi",
    ),
    (
        re.compile(
            r"\bggml_|\bllama_(?:model|context|new_context|kv_cache|perf)|CUDA Graph id \d+ reused"
            r"|disabling CUDA graphs due|^build: \d+ \([0-9a-f]+\) with"
        ),
        "llama.cpp",
    ),
    (
        re.compile(
            r"Using cuda graphs for \(varlen, decode\)|turning off accelerator graphs"
            r"|(?:Creating|Setting) graph for key ="
        ),
        "transformers",
    ),
)
READERS: Mapping[Engine, Reader] = {
    "vllm": vllm.read,
    "sglang": sglang.read,
    "trtllm": trtllm.read,
    "tgi": tgi.read,
    "llama.cpp": llama_cpp.read,
    "transformers": transformers.read,
}
_STARTS: Mapping[Engine, Callable[[LogLine], bool]] = {
    "vllm": vllm.starts_a_run,
    "sglang": sglang.starts_a_run,
    "trtllm": trtllm.starts_a_run,
    "tgi": tgi.starts_a_run,
}
# What to turn on where a log says nothing of how steps were dispatched.
DISPATCH_ADVICE: Mapping[Engine, str] = {
    "vllm": "start vLLM with --cudagraph-metrics (printed under Model Runner V2 only by releases after 0.27), "
    "or with VLLM_LOGGING_LEVEL=DEBUG, or run it under the probe",
    "sglang": "let SGLang log its batches (--log-level info), scrape its metrics (--enable-metrics), "
    "or run it under the probe",
    "trtllm": "TensorRT-LLM's log carries no graph flag; run it under the probe",
    "tgi": "text-generation-inference logs no dispatch; run it under the probe",
    "llama.cpp": "run llama.cpp with --verbose, whose debug lines name graphs, or use the native tracer",
    "transformers": "transformers logs no dispatch; run it under the probe",
    "torch": "set TORCH_LOGS=+cudagraphs, or run the process under the probe",
}


def engine_of(line: LogLine, known: Engine | None = None) -> Engine | None:
    """The engine that only can have written this line; None when many could. `known` wrote the lines before it."""
    styled = _STYLES.get(line.style)
    if styled is not None and styled == known:
        return styled
    if styled is not None and line.style != "sglang":
        return styled
    for pattern, engine in _SIGNS:
        if pattern.search(line.message):
            return engine
    return "torch" if line.style == "torch" or inductor.is_about(line.message) else styled


def starts_a_run(engine: Engine, line: LogLine) -> bool:
    """Whether a line is the first about its configuration that a new process of an engine writes."""
    starts = _STARTS.get(engine)
    return starts is not None and starts(line)
