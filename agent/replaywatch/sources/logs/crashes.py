"""How engines die: tracebacks, memory errors, dead children, and logs that simply end."""

from __future__ import annotations

import re

from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|cudaMalloc failed: out of memory"
    r"|cudaErrorMemoryAllocation"
)
_CAPTURE = re.compile(
    r"operation (?:not permitted|failed due to a previous error)[^.]* (?:when stream is capturing|during capture)"
    r"|cudaErrorStreamCapture\w+|[Gg]raph capture failed|CUDA graph capture failed|Failed to capture CUDA ?[Gg]raph"
)
_DEATHS = (
    (re.compile(r"Engine core initialization failed"), "engine core did not start"),
    (re.compile(r"EngineCore failed to start"), "engine core did not start"),
    (
        re.compile(r"EngineDeadError|EngineCore encountered a fatal error|Engine ?[Cc]ore (?:proc \S+ )?died"),
        "engine core died",
    ),
    (
        re.compile(r"Worker proc \S+ died unexpectedly|WorkerProc (?:hit an exception|failed to start)"),
        "worker process died",
    ),
    (re.compile(r"Scheduler hit an exception"), "scheduler died of an exception"),
    (re.compile(r"Received sigquit from a child process|SIGQUIT received"), "a child process failed"),
    (re.compile(r"crashed with exit code -?9\b|signal 9\b|exit ?code[ :=]+137\b|exitcode=-9"), "killed by signal 9"),
    (re.compile(r"crashed with exit code -?(?!15\b)\d+"), "a child process crashed"),
    (re.compile(r"!!! Segfault encountered|Segmentation fault|Fatal Python error|exitcode=-11"), "segmentation fault"),
    (re.compile(r"ShardCannotStart|Shard \d+ failed to start|Error when initializing model"), "shard did not start"),
    (re.compile(r"GGML_ASSERT|ggml_abort|terminate called after throwing"), "process aborted"),
    (
        re.compile(
            r"CUDA error: (?:an illegal memory access|unspecified launch failure|misaligned address|device-side)"
        ),
        "CUDA error",
    ),
)
_SHUTDOWN = re.compile(
    r"\bSIG(?:TERM|INT)\b|KeyboardInterrupt|shutdown triggered|^Shutting down$|INFO: +Shutting down|exit code -15\b"
    r"|signal 15\b|[Gg]raceful(?:ly)? (?:shutdown|exit)"
)
_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: ?(?P<text>.*))?$"
)
# Other exceptions may quote what users sent.
_TELLING = re.compile(r"^(?:RuntimeError|Exception|torch\.\w[\w.]*|.*OutOfMemoryError|.*EngineDeadError)$")
# One look decides whether any of the patterns here can match.
_SIGNS = re.compile(
    r"[Mm]emory|Error|Exception|Interrupt|Exit|captur|[Gg]raph capture|died|fail|exception|[Ss]ig|SIG|exit ?code|[Ss]eg"
    r"|[Ff]atal|GGML_ASSERT|ggml_abort|terminate|Shutting|shutdown|[Gg]raceful|ShardCannotStart|initializing model"
)
_ADVICE = re.compile(r"If out-of-memory error occurs|Possible solutions|consider decreasing")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take what a line says of a failure; False when it says nothing."""
    message = line.message
    if not _SIGNS.search(message):
        return False
    if _ADVICE.search(message):
        return False
    if _SHUTDOWN.search(message) and not run.died:
        run.stopping = True
        return True
    found = False
    if _MEMORY.search(message):
        found = True
        _out_of_memory(line, run)
    if match := _CAPTURE.search(message):
        found = True
        _capture_failed(match[0], line, run)
    for pattern, what in _DEATHS:
        if pattern.search(message):
            found = True
            _died(what, line, run)
            break
    return _exception(line, run) or found


def _out_of_memory(line: LogLine, run: EngineRun) -> None:
    if run.capturing:
        run.observe("out_of_memory", "CUDA out of memory while capturing graphs", line)
        _capture_failed("CUDA out of memory", line, run)
    else:
        run.observe("out_of_memory", "CUDA out of memory", line)


def _capture_failed(what: str, line: LogLine, run: EngineRun) -> None:
    if not run.capture_failure_counted:
        run.tally(line).captures["failed"] += 1
        run.capture_failure_counted = True
    run.observe("capture_failed", f"graph capture failed: {what}", line)


def _died(what: str, line: LogLine, run: EngineRun) -> None:
    if run.stopping:
        return
    run.observe("process_died", what, line)
    run.died = True


def _exception(line: LogLine, run: EngineRun) -> bool:
    match = _EXCEPTION.match(line.message)
    if match is None or run.stopping:
        return False
    text = match["text"] or ""
    run.last_exception = f"{match['type']}: {text}" if text and _TELLING.match(match["type"]) else match["type"]
    run.quiet_lines = 0
    run.observe("error", run.last_exception, line)
    return True


def conclude(run: EngineRun, line: LogLine, still_written: bool) -> str | None:
    """Judge how a log ended, once nothing more will come.

    Returns why nothing can be said yet, for a log whose engine is still starting. A kernel that kills a process for
    memory leaves no line, so a log that ends inside the start-up says so much and no more.
    """
    if run.died or run.stopping:
        return None
    if run.last_exception is not None and run.quiet_lines <= _LINES_AFTER_THE_END:
        run.observe("process_died", f"the log ends in {run.last_exception}", line)
        run.died = True
    elif run.started and not run.ready:
        stage = f"after '{run.milestone}'" if run.milestone else "before the model was loaded"
        if still_written:
            return f"the engine is still starting ({stage}); read the log again when it serves"
        graphs = "while graphs were captured" if run.capturing else "before it served"
        run.observe(
            "process_died",
            f"the log ends inside the start-up, {stage}, {graphs}, with no reason given",
            line,
        )
        run.died = True
        if run.capturing:
            _capture_failed("the log ends during the capture", line, run)
    return None


_LINES_AFTER_THE_END = 20
