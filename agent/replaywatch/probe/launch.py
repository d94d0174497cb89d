"""`replaywatch run -- COMMAND`: the environment that puts the probe into a command and all Python processes below it.

Covered: `python`, console scripts (`vllm`), shell scripts that end in Python, children by fork, spawn, exec and
multiprocessing, other virtual environments. Not covered, because they do not look at the environment or lose it:
`python -I`, `-E` and `-S`, programs that clear their environment, `sudo`, containers started by the command, and
engines without Python (those get the native tracer through CUDA_INJECTION64_PATH when asked).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from replaywatch.contract.errors import ProbeError
from replaywatch.probe.settings import TABLE, Value, default_socket, variable
from replaywatch.probe.tracer import LIBRARY, find_library

ENTRY: Final = Path(__file__).with_name("entry")
INJECTION: Final = "CUDA_INJECTION64_PATH"
CHAINED: Final = "REPLAYWATCH_CHAIN_INJECTION"
# For images: a file of this name and content in site-packages starts the probe where REPLAYWATCH_PROBE=1.
PTH_NAME: Final = "replaywatch.pth"
PTH_TEXT: Final = (
    'import os; os.environ.get("REPLAYWATCH_PROBE") == "1" and exec('
    '"try:\\n import replaywatch.probe as p\\n p.start()\\nexcept Exception: pass")\n'
)
_BLIND_FLAGS: Final = frozenset("IES")


def environment_for(
    options: Mapping[str, Value] | None = None,
    environment: Mapping[str, str] = os.environ,
    inject: bool = False,
) -> dict[str, str]:
    """The environment of a command that is to be watched.

    Shape: `options` rows of the probe's table by name or field; `inject` loads the native tracer into every CUDA
    process as well, for engines without Python. An injection that is set already is called first, never lost.
    Raises: ProbeError for an option that the probe does not have, or where there is no native tracer to inject.
    """
    changed = dict(environment)
    changed["REPLAYWATCH_PROBE"] = "1"
    names = {row[0] for row in TABLE}
    for given, value in (options or {}).items():
        name = given.replace("_", "-")
        if name not in names:
            raise ProbeError(f"the probe has no option {given!r}; it has {', '.join(sorted(names))}")
        if value is not None:
            changed[variable(name)] = str(value).lower() if isinstance(value, bool) else str(value)
    others = [entry for entry in changed.get("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != ENTRY]
    changed["PYTHONPATH"] = os.pathsep.join([str(ENTRY), *others])
    return _injected(changed) if inject else changed


def _injected(environment: dict[str, str]) -> dict[str, str]:
    tracer = find_library()
    if tracer is None:
        raise ProbeError(f"this installation has no native tracer ({LIBRARY}); install it with a C++17 compiler")
    other = _other_injection(environment)
    if other:
        environment[CHAINED] = other
    environment[INJECTION] = str(tracer)
    environment.setdefault("REPLAYWATCH_SOCKET", environment.get(variable("socket")) or default_socket(environment))
    return environment


def _other_injection(environment: Mapping[str, str]) -> str | None:
    """The library that the CUDA driver would inject by itself, unless it is this tracer."""
    before = environment.get(INJECTION)
    return before if before and before != str(find_library()) else None


def warnings_for(
    command: Sequence[str], environment: Mapping[str, str] = os.environ, inject: bool = False
) -> list[str]:
    """What will not be seen of a command, one sentence each; nothing where all is well."""
    found = []
    other = _other_injection(environment) if inject else None
    if other:
        found.append(f"{INJECTION} loads {other}: it is called first, and no kernels are traced beside it")
    for position, word in enumerate(command):
        if Path(word).name.startswith(("python", "pypy")):
            for flag in command[position + 1 :]:
                if not flag.startswith("-") or flag in ("-c", "-m", "-"):
                    break
                if not flag.startswith("--") and _BLIND_FLAGS & set(flag[1:]):
                    found.append(f"{Path(word).name} {flag} ignores PYTHONPATH: the probe does not start in it")
            break
    if command and Path(command[0]).name in ("sudo", "su", "docker", "podman", "env") and (
        Path(command[0]).name != "env" or "-i" in command
    ):  # fmt: skip
        found.append(f"{Path(command[0]).name} gives its command another environment: the probe may not start in it")
    return found


def run(
    command: Sequence[str],
    options: Mapping[str, Value] | None = None,
    environment: Mapping[str, str] = os.environ,
    inject: bool = False,
) -> None:
    """Become the command, watched; does not return.

    Raises: ProbeError where the command cannot be found or started.
    """
    if not command:
        raise ProbeError("no command was given; write it after --, such as: replaywatch run -- vllm serve MODEL")
    changed = environment_for(options, environment, inject)
    if shutil.which(command[0], path=changed.get("PATH")) is None:
        raise ProbeError(f"the command {command[0]!r} was not found on PATH")
    try:
        os.execvpe(command[0], list(command), changed)
    except OSError as error:
        raise ProbeError(f"the command {command[0]!r} could not be started: {error.strerror}") from None


def install_pth(folder: Path) -> Path:
    """Write the .pth file into a site-packages folder of an image. Raises: ProbeError where that is not possible."""
    if not folder.is_dir():
        raise ProbeError(f"{folder} is no folder; give the site-packages of the interpreter that serves")
    path = folder / PTH_NAME
    try:
        path.write_text(PTH_TEXT)
    except OSError as error:
        raise ProbeError(f"{path} cannot be written: {error.strerror}") from None
    return path
