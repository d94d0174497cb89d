"""The watched processes: who they are, whether they live, and whose place they took.

A process is told by its kernel identity: a descriptor of the process (pidfd) where it is visible, so that a reused
number is a new process; else by what its windows say (`pid` inside its own container), until it falls silent.
"""

from __future__ import annotations

import os
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


@dataclass(slots=True, kw_only=True)
class Process:
    """One watched process. Shape: `key` its identity; `frames` accepted so far, which numbers them."""

    key: tuple[str, int, int | None]
    pid: int | None
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


class Processes:
    """Everyone who sent something lately, at most MAX_PROCESSES; the longest silent is forgotten first."""

    def __init__(self, silence_ns: int) -> None:
        self._silence_ns = silence_ns
        self._by_key: OrderedDict[tuple[str, int, int | None], Process] = OrderedDict()
        self._ended_roles: OrderedDict[Role, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def sender(self, sender: Sender, claimed_pid: int | None, now_ns: int) -> Process:
        """The process behind a frame, new or known. `claimed_pid` tells invisible ones apart."""
        key = ("kernel", sender.uid, sender.pid) if sender.pid is not None else ("claim", sender.uid, claimed_pid)
        process = self._by_key.get(key)
        if process is not None and process.ended:
            self._remove(process, now_ns)
            process = None
        if process is None:
            process = self._by_key[key] = _meet(key, sender, now_ns)
            while len(self._by_key) > MAX_PROCESSES:
                self._remove(next(iter(self._by_key.values())), now_ns)
        process.last_ns = now_ns
        self._by_key.move_to_end(key)
        return process

    def takes_place(self, process: Process, workload: Workload) -> bool:
        """Whether this process now does what an ended one did before; True once for each."""
        role = role_of(workload)
        if role is None or role in process.roles or len(process.roles) >= REMEMBERED_ROLES:
            return False
        process.roles.add(role)
        return self._ended_roles.pop(role, None) is not None

    def gone(self, now_ns: int) -> list[Process]:
        """The processes that ended or fell silent since the last call."""
        gone = [p for p in self._by_key.values() if now_ns - p.last_ns > self._silence_ns or p.ended]
        for process in gone:
            self._remove(process, now_ns)
        return gone

    def close(self) -> None:
        """Let go of all processes."""
        for process in self._by_key.values():
            process.close()
        self._by_key.clear()

    def _remove(self, process: Process, now_ns: int) -> None:
        self._by_key.pop(process.key, None)
        process.close()
        for role in process.roles:
            self._ended_roles[role] = now_ns
        while len(self._ended_roles) > REMEMBERED_ROLES:
            self._ended_roles.popitem(last=False)


def _meet(key: tuple[str, int, int | None], sender: Sender, now_ns: int) -> Process:
    process = Process(key=key, pid=sender.pid, first_ns=now_ns, last_ns=now_ns)
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
