"""The layers in front of a message: container runtimes, log shippers, process names, levels, ranks and stamps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from replaywatch.sources.logs.clock import Clock

Style = Literal["plain", "vllm", "sglang", "trtllm", "tgi", "torch", "llama.cpp", "engine_process"]
_MAX_LAYERS = 8


@dataclass(slots=True)
class LogLine:
    """One line without its prefix. `message` keeps the indentation that continues an earlier message.

    `style` is whose prefix it was, `rank` the tensor-parallel rank and `replica` the data-parallel one; `partial` says
    that a container runtime cut the line and the next one goes on with it.
    """

    message: str
    stamp_ns: int | None = None
    level: str | None = None
    style: Style = "plain"
    process: str | None = None
    pid: int | None = None
    rank: int | None = None
    replica: int | None = None
    where: str | None = None
    pod: str | None = None
    container: str | None = None
    namespace: str | None = None
    partial: bool = False

    @property
    def origin(self) -> tuple[str | None, str | None]:
        """Pod and container, which keep interleaved logs apart."""
        return self.pod, self.container


_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_ISO = re.compile(rf"(\d{{4}}-\d\d-\d\d[T ]{_TIME}(?:Z|[+-]\d\d:?\d\d)?)(?: (std(?:out|err)) ([FP]))?(?: |$)")
_ISO_REST = re.compile(r"- (DEBUG|INFO|WARNING|ERROR|CRITICAL) - |\s*(TRACE|DEBUG|INFO|WARN|ERROR) ")
_TGI_TARGET = re.compile(r"(?:[\w-]+: )?(text_generation\w*(?:::\w+)*|text-generation\w*): (?:[\w/.-]+\.rs:\d+: )?")
_SYSLOG = re.compile(rf"([A-Z][a-z]{{2}}) +(\d{{1,2}}) ({_TIME}) (\S+) ([^\s:\[\]]+)(?:\[(\d+)\])?: ?")
_SYSLOG_REST = re.compile(r"(\S+) ([^\s:\[\]]+)\[(\d+)\]: ")
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]*)\s+\| ?")
_POD = re.compile(r"\[pod/([^/\]\s]+)/([^\]\s]+)\] ")
_PROCESS = re.compile(
    r"\((?P<process>[A-Za-z]\w*(?: [A-Z]+\d+)*)(?: rank=(?P<rank>\d+))?(?: pid=(?P<pid>\d+))?(?P<more>,[^)]*)?\)(?: |$)"
)
_ENGINE_PROCESS = re.compile(r"APIServer|ApiServer|EngineCore|Worker|VllmWorker|Ray|DPCoordinator")
_VLLM = re.compile(
    rf"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) (?P<time>{_TIME}) "
    r"\[?(?P<where>[^\]\s]+:\d+)\](?: |$)"
)
_VLLM_INSIDE = re.compile(
    r"(?:\([A-Za-z]\w*(?: rank=\d+)? pid=\d+[^)]*\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
)
_SGLANG = re.compile(rf"\[(\d{{4}})-(\d\d)-(\d\d) ({_TIME})(?P<ranks>(?: (?:DP|TP|PP|EP|ATTN_CP|MOE_DP)\d+)*)\] ?")
_SGLANG_INSIDE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_TRTLLM = re.compile(
    r"\[(\d\d)/(\d\d)/(\d{4})-(\d\d:\d\d:\d\d)\] \[TRT-LLM\] "
    r"(?:\[RANK (?P<before>\d+)\] )?\[(?P<level>[A-Z])\] ?(?:\[RANK (?P<after>\d+)\])?(?:\[[\w.: -]*\])? ?"
)
_TRTLLM_SHORT = re.compile(r"\[(?:TRT-LLM|TensorRT-LLM)\](?:\[([A-Z]+)\])? ?")
_TORCH = re.compile(
    rf"(?:\[rank(?P<rank>\d+)\]:)?(?P<level>[VDIWEC])(?P<month>\d\d)(?P<day>\d\d) (?P<time>{_TIME}) +(?P<pid>\d+) "
    r"(?P<where>[^\]\s]+:\d+)\] ?(?:\[\d+/\d+(?:_\d+)?\] ?)?(?:\[__(?P<artifact>\w+)\] ?)?"
)
_LLAMA = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} ([DIWE]) ")
_RANK = re.compile(r"(DP|TP)_?(\d+)")
_UNRANKED = re.compile(r"VllmWorkerProcess$|RayWorker")
_CORE_NUMBER = re.compile(r"EngineCore_(\d+)$")
_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "V": "DEBUG", "D": "DEBUG", "C": "CRITICAL", "WARN": "WARNING"}


def peel(text: str, clock: Clock) -> LogLine:
    """A line without the layers in front of its message. Any text gives a line."""
    line = LogLine(text)
    _peel_all(line, clock)
    if line.style in ("plain", "engine_process") and len(line.message) > 20:
        inside = _VLLM_INSIDE.search(line.message) or _SGLANG_INSIDE.search(line.message, 1)
        if inside and inside.start():  # behind an unfinished progress bar of another process
            line.message = line.message[inside.start() :]
            _peel_all(line, clock)
    return line


def _peel_all(line: LogLine, clock: Clock) -> None:
    for _ in range(_MAX_LAYERS):
        before = line.message
        for layer in _LAYERS.get(before[:1], _OTHER_LAYERS):
            if layer(line, clock):
                break
        if line.message == before:
            return


def _rest(line: LogLine, match: re.Match[str]) -> bool:
    line.message = line.message[match.end() :]
    return True


def _ranks(line: LogLine, text: str) -> None:
    for name, number in _RANK.findall(text):
        if name == "TP":
            line.rank = int(number)
        else:
            line.replica = int(number)


def _stamp(line: LogLine, stamp_ns: int | None) -> None:
    """The outermost stamp wins: the carrier's knows its zone and is on every line."""
    if line.stamp_ns is None:
        line.stamp_ns = stamp_ns


def _json(line: LogLine, clock: Clock) -> bool:
    try:
        record = json.loads(line.message)
    except (ValueError, RecursionError):
        return False
    if not isinstance(record, dict):
        return False
    fields = record.get("fields")
    sources = [record, fields] if isinstance(fields, dict) else [record]
    message = _first(sources, "message", "msg", "log", "event", "textPayload", "MESSAGE", "body")
    if message is None:
        return False
    stamp = _first(sources, "timestamp", "time", "asctime", "ts", "@timestamp", "datetime")
    _stamp(line, clock.iso(stamp) if stamp else None)
    line.level = _first(sources, "level", "levelname", "severity") or line.level
    kubernetes = record.get("kubernetes")
    if isinstance(kubernetes, dict):
        line.pod = _first([kubernetes], "pod_name") or line.pod
        line.container = _first([kubernetes], "container_name") or line.container
        line.namespace = _first([kubernetes], "namespace_name") or line.namespace
    if str(record.get("target", "")).startswith("text_generation"):
        line.style = "tgi"
    line.partial = "log" in record and "stream" in record and not message.endswith("\n")
    line.message = message.rstrip("\n")
    return True


def _first(records: list[dict[str, object]], *names: str) -> str | None:
    for name in names:
        for record in records:
            value = record.get(name)
            if isinstance(value, (str, float, int)) and not isinstance(value, bool):
                return str(value)
    return None


def _process(line: LogLine, clock: Clock) -> bool:
    match = _PROCESS.match(line.message)
    if match is None or not (match["pid"] or _ENGINE_PROCESS.match(match["process"])):
        return False
    line.process = match["process"]
    line.pid = int(match["pid"]) if match["pid"] else line.pid
    if match["rank"]:
        line.rank = int(match["rank"])
    _ranks(line, line.process)
    if line.rank is None and _UNRANKED.match(line.process):
        line.rank = line.pid  # any number that tells these workers apart
    numbered = _CORE_NUMBER.match(line.process)
    if numbered:
        line.replica = int(numbered[1])
    if line.style == "plain":
        line.style = "engine_process"
    return _rest(line, match)


def _vllm(line: LogLine, clock: Clock) -> bool:
    match = _VLLM.match(line.message)
    if match is None:
        return False
    line.style, line.level, line.where = "vllm", match["level"], match["where"]
    _stamp(line, clock.undated(int(match["month"]), int(match["day"]), match["time"]))
    return _rest(line, match)


def _bracket(line: LogLine, clock: Clock) -> bool:
    if match := _SGLANG.match(line.message):
        line.style = "sglang"
        _stamp(line, clock.dated(int(match[1]), int(match[2]), int(match[3]), match[4]))
        _ranks(line, match["ranks"])
        return _rest(line, match)
    if match := _TRTLLM.match(line.message):
        line.style, line.level = "trtllm", _LEVELS.get(match["level"], match["level"])
        _stamp(line, clock.dated(int(match[3]), int(match[1]), int(match[2]), match[4]))
        rank = match["before"] or match["after"]
        line.rank = int(rank) if rank else line.rank
        return _rest(line, match)
    if match := _POD.match(line.message):
        line.pod, line.container = match[1], match[2]
        return _rest(line, match)
    if match := _TRTLLM_SHORT.match(line.message):
        line.style, line.level = "trtllm", match[1] or line.level
        return _rest(line, match)
    return _torch(line, clock)


def _torch(line: LogLine, clock: Clock) -> bool:
    match = _TORCH.match(line.message)
    if match is None:
        return False
    if line.style in ("plain", "engine_process"):
        line.style = "torch"
    line.where, line.level = match["where"], _LEVELS.get(match["level"])
    line.rank = int(match["rank"]) if match["rank"] else line.rank
    _stamp(line, clock.undated(int(match["month"]), int(match["day"]), match["time"]))
    return _rest(line, match)


def _iso(line: LogLine, clock: Clock) -> bool:
    match = _ISO.match(line.message)
    if match is None:
        return False
    _stamp(line, clock.iso(match[1]))
    line.partial = match[3] == "P"
    _rest(line, match)
    if rest := _SYSLOG_REST.match(line.message):
        line.pid = line.pid or int(rest[3])
        _rest(line, rest)
    if rest := _ISO_REST.match(line.message):
        line.level = _LEVELS.get(rest[1] or rest[2], rest[1] or rest[2])
        _rest(line, rest)
    if target := _TGI_TARGET.match(line.message):
        line.style = "tgi"
        _rest(line, target)
    return True


def _syslog(line: LogLine, clock: Clock) -> bool:
    match = _SYSLOG.match(line.message)
    month = clock.month_name(match[1]) if match else None
    if match is None or month is None:
        return False
    _stamp(line, clock.undated(month, int(match[2]), match[3]))
    line.pid = int(match[6]) if match[6] else line.pid
    return _rest(line, match)


def _llama(line: LogLine, clock: Clock) -> bool:
    match = _LLAMA.match(line.message)
    if match is None:
        return False
    line.style, line.level = "llama.cpp", _LEVELS[match[1]]
    return _rest(line, match)


def _compose(line: LogLine, clock: Clock) -> bool:
    match = _COMPOSE.match(line.message)
    if match is None or line.container is not None or line.style != "plain":
        return False
    line.container = match[1]
    return _rest(line, match)


_Layer = Callable[[LogLine, Clock], bool]
_OTHER_LAYERS: tuple[_Layer, ...] = (_vllm, _iso, _syslog, _torch, _llama, _compose)
_LAYERS: dict[str, tuple[_Layer, ...]] = {"{": (_json,), "(": (_process,), "[": (_bracket,), " ": ()}
