"""The watched processes: who they are, whether they live, and whose place they took.

A process is told by its kernel identity: a descriptor of the process (pidfd) where it is visible, so that a reused
number is a new process; else by what its frames say (its number inside its own container, and when it started), until
it falls silent or another takes its number and place.
"""

from __future__ import annotations

import os
import re
import select
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from replaywatch.agent.cgroup import ContainerName, Place, name_of, place_of
from replaywatch.agent.inlet import Sender
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Workload

MAX_PROCESSES: Final = 1024
REMEMBERED_ROLES: Final = 1024
Role = tuple[str | int | None, ...]
Identity = tuple[str, int, str | int | None]
# A probe's keys are <pid>-<start of the process>-<number of the frame>.
_PROBE_KEY: Final = re.compile(r"(\d+-[0-9a-f]+)-\d+")


@dataclass(slots=True, kw_only=True)
class Process:
    """One watched process. Shape: `key` its identity; `frames` accepted so far, which numbers them."""

    key: Identity
    pid: int | None
    claimed_pid: int | None = None
    first_ns: int
    last_ns: int
    pidfd: int | None = None
    inner_pid: int | None = None
    place: Place = field(default_factory=Place)
    name: ContainerName | None = None
    frames: int = 0
    recent_keys: OrderedDict[int, None] = field(default_factory=OrderedDict)
    fingerprints: OrderedDict[str, Fingerprint] = field(default_factory=OrderedDict)
    configs: OrderedDict[str, EngineConfig] = field(default_factory=OrderedDict)
    roles: set[Role] = field(default_factory=set)
    left: bool = False

    @property
    def is_unseen(self) -> bool:
        """Whether the kernel does not show it to the agent."""
        return self.pid is None

    @property
    def ended(self) -> bool:
        """Whether the kernel says that it has ended; False where it cannot be seen."""
        if self.pidfd is None:
            return False
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Let go of the process."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def role_of(workload: Workload) -> Role | None:
    """What a process is for, whichever process does it; None where nothing but the process says."""
    if workload.pod is None and workload.container is None:
        return None
    return (workload.namespace, workload.pod, workload.container, workload.rank, workload.gpu_uuid, workload.component)


def identity_of(sender: Sender, frame_key: str, claimed_pid: int | None) -> Identity:
    """Who a sender is: by the kernel's number, else by what its frame says."""
    if sender.pid is not None:
        return ("kernel", sender.uid, sender.pid)
    match = _PROBE_KEY.fullmatch(frame_key)
    return ("claim", sender.uid, match[1] if match else claimed_pid)


class Processes:
    """Everyone who sent something lately, at most MAX_PROCESSES; the longest silent is forgotten first."""

    def __init__(self, silence_ns: int) -> None:
        self._silence_ns = silence_ns
        self._by_key: OrderedDict[Identity, Process] = OrderedDict()
        self._holders: OrderedDict[Role, Process] = OrderedDict()
        self._departed: list[Process] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def sender(self, sender: Sender, frame_key: str, claimed_pid: int | None, now_ns: int) -> Process:
        """The process behind a frame, new or known."""
        key = identity_of(sender, frame_key, claimed_pid)
        process = self._by_key.get(key)
        if process is not None and process.ended:
            self._remove(process)
            process = None
        if process is None:
            process = self._by_key[key] = _meet(key, sender, claimed_pid, now_ns)
            while len(self._by_key) > MAX_PROCESSES:
                self._remove(next(iter(self._by_key.values())))
        process.last_ns = now_ns
        self._by_key.move_to_end(key)
        return process

    def takes_place(self, process: Process, workload: Workload) -> bool:
        """Whether this process now does what an ended one did before; True once for each."""
        role = role_of(workload)
        if role is None or role in process.roles or len(process.roles) >= REMEMBERED_ROLES:
            return False
        process.roles.add(role)
        before = self._holders.pop(role, None)
        self._holders[role] = process
        while len(self._holders) > REMEMBERED_ROLES:
            self._holders.popitem(last=False)
        if before is None:
            return False
        if before.is_unseen and process.is_unseen and before.claimed_pid == process.claimed_pid is not None:
            self._remove(before)  # no two live processes of one container have one number
        return before.left

    def gone(self, now_ns: int) -> list[Process]:
        """The processes that ended or fell silent since the last call."""
        for process in [p for p in self._by_key.values() if now_ns - p.last_ns > self._silence_ns or p.ended]:
            self._remove(process)
        departed, self._departed = self._departed, []
        return departed

    def close(self) -> None:
        """Let go of all processes."""
        for process in self._by_key.values():
            process.close()
        self._by_key.clear()

    def _remove(self, process: Process) -> None:
        if self._by_key.get(process.key) is process:
            del self._by_key[process.key]
        if not process.left:
            process.left = True
            process.close()
            self._departed.append(process)


def _meet(key: Identity, sender: Sender, claimed_pid: int | None, now_ns: int) -> Process:
    process = Process(key=key, pid=sender.pid, claimed_pid=claimed_pid, first_ns=now_ns, last_ns=now_ns)
    if sender.pid is not None:
        process.pidfd = _descriptor(sender.pid)
        process.inner_pid = _inner_pid(sender.pid)
        process.place = place_of(sender.pid)
        process.name = name_of(process.place.container_id) if process.place.container_id else None
    return process


def _descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # it ended already, no descriptors are left, or the sandbox forbids the call
        return None


def _inner_pid(pid: int) -> int | None:
    """The number that a process has in its own PID namespace; None where the kernel does not show it."""
    try:
        with open(f"/proc/{pid}/status", errors="replace") as lines:
            for line in lines:
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
    except (OSError, ValueError, IndexError):
        pass
    return None
