"""`replaywatch doctor`: what will be seen on this host and in this process, what will not, and why.

`before` looks at the host and at the Python environment without importing torch or touching CUDA; `after` judges a
process by what it sent. Both return checks, and only the command line prints.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from replaywatch.contract.window import Window, Workload
from replaywatch.probe.launch import INJECTION
from replaywatch.probe.settings import settle
from replaywatch.probe.tracer import LIBRARY, TracerUnavailable, find_library, version_notes

State = Literal["ok", "blind", "bad"]
MIN_TORCH: Final = (2, 4)
OFFICIAL_TORCH: Final = (2, 14)
# The agent's own limit: sockaddr_un holds 108, and the agent binds a longer name first.
MAX_SOCKET_PATH_BYTES: Final = 100
# Variables that take graphs or sight away, and what each does.
CONFLICTS: Final[Mapping[str, str]] = {
    "TORCH_COMPILE_DISABLE": "torch.compile is off, and with it its graphs",
    "TORCHDYNAMO_DISABLE": "torch.compile is off, and with it its graphs",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "graphs cannot be captured without the caching allocator",
    "CUDA_LAUNCH_BLOCKING": "every launch waits; times say nothing about normal running",
    "KINETO_USE_DAEMON": "a daemon may start Kineto at any time, so kernels are not traced",
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems holds CUPTI, so kernels are not traced",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute holds CUPTI, so kernels are not traced",
    "REPLAYWATCH_CHAIN_INJECTION": "another tool is loaded beside the tracer; kernels may not be traced beside it",
    "NVTX_INJECTION64_PATH": "another tool listens to NVTX; kernels may not be traced beside it",
    "GGML_CUDA_DISABLE_GRAPHS": "llama.cpp captures no graphs",
}
# Kineto only asks whether it is there.
WHATEVER_VALUE: Final = ("KINETO_USE_DAEMON",)
_CUPTI = "libcupti.so"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: `ok` it works, `blind` something will not be seen, `bad` it must be changed."""

    name: str
    state: State
    sentence: str


def before(
    environment: Mapping[str, str] = os.environ, site_folders: list[Path] | None = None, proc: Path = Path("/proc")
) -> list[Check]:
    """What this host and this Python environment will show. Shape: `site_folders` None for this interpreter's own."""
    folders = _site_folders() if site_folders is None else site_folders
    return [
        _gpu(proc),
        _driver(proc),
        torch(folders),
        _cupti(folders),
        _tracer(environment),
        _socket(environment),
        injection(environment),
        *conflicts(environment),
        *options(environment),
    ]


def after(windows: Iterable[Window]) -> list[Check]:
    """What processes said of themselves. Shape: one window for each process, component and phase."""
    checks = []
    for window in windows:
        seen, cost, who = window.dispatch, window.cost, _who(window.workload)
        if seen.replays is not None:
            alive = "" if seen.live_graphs is None else f"{seen.live_graphs} graphs alive, "
            seconds = (window.end_ns - window.start_ns) / 1e9
            checks.append(Check("graphs", "ok", f"{who}: {alive}{seen.replays} replays in {seconds:.1f} s"))
        if seen.steps:
            steps = ", ".join(f"{count} {mode}" for mode, count in seen.steps.items())
            checks.append(Check("steps", "ok", f"{who}: {steps}"))
        checks += [Check(spot.signal, "blind", f"{who}: {spot.reason}") for spot in window.blind]
        if cost is not None and (cost.errors or cost.frames_dropped):
            sentence = f"{who}: {cost.errors} hooks failed, {cost.frames_dropped} frames were dropped"
            checks.append(Check("probe", "bad" if cost.errors else "blind", sentence))
    return checks


def _who(workload: Workload) -> str:
    pid = f"pid {workload.pid}"
    return workload.label if workload.pid is None or pid in workload.label else f"{workload.label}, {pid}"


def _gpu(proc: Path) -> Check:
    cards = sorted((proc / "driver/nvidia/gpus").glob("*/information"))
    names = [m.group(1).strip() for c in cards if (m := re.search(r"Model:\s*(.+)", _read(c)))]
    if not names:
        return Check("gpu", "blind", "no NVIDIA GPU is visible here; graphs are counted where CUDA runs")
    return Check("gpu", "ok", f"{len(names)} GPU: {', '.join(sorted(set(names)))}")


def _driver(proc: Path) -> Check:
    version = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", _read(proc / "driver/nvidia/version"))
    if version is None:
        return Check("driver", "blind", "the NVIDIA driver is not loaded here")
    restricted = "RmProfilingAdminOnly: 1" in _read(proc / "driver/nvidia/params")
    note = " (hardware counters are for administrators only; tracing does not need them)" if restricted else ""
    return Check("driver", "ok", f"driver {version.group(1)}{note}")


def torch(folders: list[Path]) -> Check:
    """The torch in some site-packages, by its files."""
    text = next((t for f in folders if (t := _read(f / "torch/version.py"))), "")
    found = re.search(r"__version__(?::[^=]+)?\s*=\s*['\"](\d+)\.(\d+)([^'\"]*)", text)
    if found is None:
        return Check("torch", "blind", "torch is not installed in this environment; look again where it is served")
    number = (int(found.group(1)), int(found.group(2)))
    name = f"torch {found.group(1)}.{found.group(2)}{found.group(3)}"
    if number < MIN_TORCH:
        return Check("torch", "bad", f"{name} is older than 2.4, the first release that the hooks know")
    how = "torch's own capture hook and wrapped methods" if number >= OFFICIAL_TORCH else "wrapped methods"
    return Check("torch", "ok", f"{name}: graphs are seen through {how}")


def _cupti(folders: list[Path]) -> Check:
    patterns = ("nvidia/cu*/lib/libcupti.so*", "nvidia/cuda_cupti/lib/libcupti.so*", "torch/lib/libcupti*")
    found = [path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))]
    found += sorted(Path("/usr/local").glob(f"cuda*/extras/CUPTI/lib64/{_CUPTI}*"))
    if not found:
        return Check("cupti", "blind", "no libcupti was found; kernels cannot be traced, graphs are still counted")
    name = f"{found[0].name} in {found[0].parent}"
    try:
        notes = version_notes(found[0])
    except TracerUnavailable:  # the tracer's own line says so
        return Check("cupti", "ok", name)
    said = "".join(f"; {note['text']}" for note in notes)
    return Check("cupti", "blind" if any(n["effect"] == "refuse" for n in notes) else "ok", name + said)


def _tracer(environment: Mapping[str, str]) -> Check:
    tracer = find_library()
    if tracer is not None and not settle({}, environment).kernels:
        return Check("tracer", "ok", f"native tracer: {tracer}; traces kernels with REPLAYWATCH_PROBE_KERNELS=1 only")
    if tracer is not None:
        return Check("tracer", "ok", f"native tracer: {tracer}")
    return Check("tracer", "blind", "this installation has no native tracer: no kernels, gaps and coverage")


def _socket(environment: Mapping[str, str]) -> Check:
    path = settle({}, environment).socket
    reason = unreachable(path, Path(path))
    return Check("agent", "ok", f"an agent listens at {path}") if reason is None else Check("agent", "bad", reason)


def unreachable(path: str, place: Path) -> str | None:
    """Why nobody is heard at a socket, and what to do; None where an agent listens.

    Shape: `path` as the process has it, `place` the same as it is reached from here.
    """
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES:
        return f"the socket path {path} has {size} bytes; an agent takes at most {MAX_SOCKET_PATH_BYTES}, on both sides"
    try:
        _knock(place)
    except OSError as error:
        if error.errno == errno.EPROTOTYPE or (os.path.exists(place) and not place.is_socket()):
            return f"{path} is no datagram socket; give another one with REPLAYWATCH_PROBE_SOCKET"
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return f"no agent listens at {path}; start it with: replaywatch agent"
        if isinstance(error, PermissionError):
            return f"user {os.geteuid()} may not write to {path}; see the agent's --socket-group and its folder's mode"
        return f"{path} cannot be reached ({error.strerror}); check its folder"
    return None


def _knock(place: Path) -> None:
    """Connect, which sends nothing. By a descriptor: a path into another file system may be too long for a socket."""
    descriptor = os.open(place, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knock:
            knock.connect(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def injection(environment: Mapping[str, str]) -> Check:
    """What an environment loads into every process that uses CUDA."""
    path = environment.get(INJECTION)
    if not path:
        return Check("injection", "ok", f"{INJECTION} is free")
    if Path(path).name == LIBRARY:
        return Check("injection", "ok", f"{INJECTION} loads this tracer")
    return Check(
        "injection", "blind", f"{INJECTION} loads {path}; that tool may hold CUPTI, then kernels are not traced"
    )


def conflicts(environment: Mapping[str, str]) -> list[Check]:
    """Variables of an environment that take graphs or sight away."""
    found = [
        (name, what)
        for name, what in CONFLICTS.items()
        if (name in environment if name in WHATEVER_VALUE else environment.get(name, "0") not in ("", "0"))
    ]
    return [Check("environment", "blind", f"{name}={environment[name][:40]}: {what}") for name, what in found]


def options(environment: Mapping[str, str]) -> list[Check]:
    """Options of the probe that an environment gives wrongly."""
    return [Check("options", "bad", problem) for problem in settle({}, environment).problems]


def _site_folders() -> list[Path]:
    import site
    import sys

    folders = [*site.getsitepackages(), *sys.path]
    return [Path(folder) for folder in dict.fromkeys(folders) if folder]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:65536]
    except OSError:
        return ""
