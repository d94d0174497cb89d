"""`replaywatch doctor --pid`: what can be seen of a process that runs already, from outside, through /proc.

Nothing is asked of the process and nothing is changed in it. What only the process itself knows is named as such.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from replaywatch.probe import doctor
from replaywatch.probe.doctor import Check
from replaywatch.probe.launch import PTH_NAME, warnings_for
from replaywatch.probe.other_process import OtherProcess, first_named
from replaywatch.probe.settings import settle
from replaywatch.probe.socket_peers import connected_to
from replaywatch.probe.tracer import LIBRARY

# Parts of mapped files' names that tell another user of CUPTI, as in the tracer's neighbours.cpp.
TOOLS: Final[Mapping[str, str]] = {
    "libToolsInjection": "NVIDIA Nsight Systems",
    "libcuda-injection": "NVIDIA Nsight Compute",
    "libnvperf_host_injection": "NVIDIA Nsight Compute",
    "libInterceptorInjectionTarget": "NVIDIA Nsight Compute",
    "libTreeLauncherTargetInjection": "NVIDIA Nsight Compute",
    "libsanitizer-collection": "NVIDIA Compute Sanitizer",
    "libparcagpucupti": "parcagpu",
    "libgpufl": "GPUFlight",
    "libxpu_timer": "DLRover xpu_timer",
    "libwprofinj": "wprof",
}
# Engines that load plugins, and the variable that names those allowed.
PLUGINS: Final[Mapping[str, str]] = {"vllm": "VLLM_PLUGINS", "sglang": "SGLANG_PLUGINS"}
UNKNOWN: Final = Check(
    "from outside",
    "blind",
    "hooks in place, blind spots, options given in code and variables set after its start are known to the process "
    "alone: the collector's page shows what it says, and --listen hears it where no agent listens",
)
_OFF: Final = ("0", "false", "no", "off")
_ENTRY: Final = "replaywatch/probe/entry"
_DRIVER: Final = "libcuda.so"
_DAC_OVERRIDE: Final = 1 << 1  # of capabilities(7)


def outside(process: OtherProcess) -> list[Check]:
    """What is seen of a process that runs already, and what is not."""
    return [
        Check("process", "ok", f"{' '.join(process.command)[:80]}; user {process.user}"),
        *_overwritten(process),
        _gpu(process),
        _torch(process),
        _kernels(process),
        *_tools(process),
        _start(process),
        *(Check("probe", "blind", warning) for warning in warnings_for(process.command)),
        *_agent(process),
        doctor.injection(process.environment),
        *doctor.conflicts(process.environment),
        *doctor.options(process.environment),
        UNKNOWN,
    ]


def _overwritten(process: OtherProcess) -> list[Check]:
    if process.environment_of == process.pid:
        return []
    if process.environment_of is None:
        rest = "no ancestor's can be read; what follows takes every variable as unset"
    else:
        rest = f"what follows is that of its ancestor {process.environment_of}"
    return [Check("environment", "blind", f"overwritten by its title; {rest}")]


def _gpu(process: OtherProcess) -> Check:
    if (driver := process.maps(_DRIVER)) is not None:
        return Check("gpu", "ok", f"it has loaded {driver}")
    if users := sorted(pid for pid, mapped in process.children.items() if first_named(mapped, _DRIVER)):
        below = f"of the processes below it {', '.join(map(str, users))} have: look at those"
        return Check("gpu", "blind", f"it has not loaded CUDA's driver; {below}")
    return Check("gpu", "blind", "neither it nor a process below it has loaded CUDA's driver, so far")


def _torch(process: OtherProcess) -> Check:
    if process.maps("libtorch_cuda", "libtorch_cpu", "libtorch_python") is None:
        return Check("torch", "blind", "it has not loaded torch, so far")
    return doctor.torch(process.site_folders())


def _kernels(process: OtherProcess) -> Check:
    cupti, tracer = process.maps("libcupti.so"), process.maps(LIBRARY)
    if tracer is not None:
        return Check("tracer", "ok", f"it has loaded {tracer}, and of CUPTI {cupti or 'nothing'}")
    if not settle({}, process.environment).kernels:
        return Check("tracer", "ok", "it has no tracer loaded and needs none: REPLAYWATCH_PROBE_KERNELS is not set")
    return Check("tracer", "blind", "it has no tracer loaded, though REPLAYWATCH_PROBE_KERNELS is set; has work begun?")


def _tools(process: OtherProcess) -> list[Check]:
    found = {tool: path for part, tool in TOOLS.items() for path in sorted(process.mapped) if part in path}
    return [Check("tools", "blind", f"{tool} is in it ({path}); CUPTI is left to it") for tool, path in found.items()]


def _start(process: OtherProcess) -> Check:
    """What starts the probe in it."""
    asked = process.environment.get("REPLAYWATCH_PROBE", "").strip().lower()
    entries = [p for p in process.environment.get("PYTHONPATH", "").split(":") if p.rstrip("/").endswith(_ENTRY)]
    if asked in _OFF:
        return Check("probe", "bad", f"REPLAYWATCH_PROBE={asked} keeps the probe out; start it again without")
    if not any("python" in Path(path).name for path in process.mapped):
        if process.maps(LIBRARY):
            return Check("probe", "ok", "it is no Python, and the native tracer is in it")
        return Check("probe", "bad", "it is no Python; to see its kernels, start it with: replaywatch run --inject")
    if asked == "1" and any(process.inside(f"{entry}/sitecustomize.py").exists() for entry in entries):
        return Check("probe", "ok", "it was started by `replaywatch run`, or with its environment")
    if asked == "1" and any((folder / PTH_NAME).exists() for folder in process.site_folders()):
        return Check("probe", "ok", f"{PTH_NAME} starts the probe in it")
    return _plugin(process)


def _plugin(process: OtherProcess) -> Check:
    installed = any(list(folder.glob("replaywatch-*.dist-info")) for folder in process.site_folders())
    engine = next((e for e in PLUGINS if any(e in Path(word).name.lower() for word in process.command)), None)
    if engine is None or not installed:
        return Check("probe", "blind", f"neither PYTHONPATH, {PTH_NAME} nor an engine starts the probe; its code may")
    allowed = process.environment.get(PLUGINS[engine])
    if allowed is not None and "replaywatch" not in allowed.split(","):
        return Check("probe", "bad", f"{PLUGINS[engine]}={allowed} keeps the probe out; name replaywatch there as well")
    return Check("probe", "ok", f"{engine} loads the probe as its plugin")


def _agent(process: OtherProcess) -> list[Check]:
    """Whether what it sends arrives."""
    path = settle({}, process.environment).socket
    place = process.inside(path)
    if (reason := doctor.unreachable(path, place)) is not None:
        return [Check("agent", "bad", f"as this process sees it, {reason}")]
    file = place.stat()
    if not _may_send(process, path):
        return [Check("agent", "bad", f"user {process.user} may not write to {path}; see the agent's --socket-group")]
    checks = [Check("agent", "ok", f"an agent listens at {path}, as this process sees it")]
    if process.user not in (0, file.st_uid):
        hears = f"the agent of user {file.st_uid} hears user {process.user} only with --allow-uids {process.user}"
        checks.append(Check("agent", "blind", hears))
    return [*checks, _connection(process, file)]


def _may_send(process: OtherProcess, path: str) -> bool:
    """Whether modes let a process's user write to a socket."""
    folders = [process.inside(parent).stat() for parent in Path(path).parents]
    return _allowed(process, process.inside(path).stat(), 2) and all(_allowed(process, f, 1) for f in folders)


def _allowed(process: OtherProcess, file: os.stat_result, bit: int) -> bool:
    shift = 6 if file.st_uid == process.user else 3 if file.st_gid in process.groups else 0
    return bool(process.capabilities & _DAC_OVERRIDE or file.st_mode >> shift & bit)


def _connection(process: OtherProcess, file: os.stat_result) -> Check:
    try:
        connected = connected_to(process.sockets, file) if process.same_network else None
    except OSError:
        connected = None
    if connected is None:
        return Check("connection", "blind", "whether it has sent anything cannot be told from this network namespace")
    if connected:
        return Check("connection", "ok", "the probe in it has connected to the agent")
    return Check(
        "connection", "blind", "it has not connected to the agent: no probe, or no window yet (5 s after CUDA starts)"
    )
