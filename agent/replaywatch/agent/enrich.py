"""Completes windows with what a probe inside a container cannot know: node, pod, device, driver.

What the kernel and NVML say of a sender goes before what it says of itself; the agent's own surroundings only fill
gaps, and only where agent and sender share a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from replaywatch.agent.admission import Admitted
from replaywatch.agent.cgroup import Place
from replaywatch.agent.devices import Device, DeviceTable
from replaywatch.agent.downward import Surroundings
from replaywatch.agent.processes import Process
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Observation, Window, Workload
from replaywatch.sources.recording import Recording

Scope = Literal["auto", "pod", "node"]
REMEMBERED_SNAPSHOTS: Final = 16
SHORT_ID: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Completed windows, with every snapshot that they point to and that is known here."""

    windows: tuple[Window, ...]
    fingerprints: Mapping[str, Fingerprint]
    configs: Mapping[str, EngineConfig]


class Enricher:
    """Completes the windows of admitted frames."""

    def __init__(
        self,
        surroundings: Surroundings,
        scope: Scope,
        own_place: Place,
        devices: Callable[[], DeviceTable],
    ) -> None:
        self._surroundings = surroundings
        self._scope = scope
        self._own_place = own_place
        self._devices = devices

    def complete(self, admitted: Admitted, restarted: Callable[[Process, Workload], bool]) -> Parcel:
        """A frame's windows, completed. `restarted` tells whether a process took an ended one's place."""
        process, batch = admitted.process, admitted.batch
        remember(process, batch.fingerprints, batch.configs)
        table = self._devices()
        windows, fingerprints = [], {}
        for window in batch.windows:
            device = self._device_of(window.workload, process, table)
            workload = self._workload(window.workload, process, device)
            fingerprint = complete_fingerprint(process.fingerprints.get(window.fingerprint_id or ""), device, table)
            if fingerprint is not None and (
                window.fingerprint_id is None or window.fingerprint_id in process.fingerprints
            ):
                fingerprints[fingerprint.id] = fingerprint
                window = replace(window, fingerprint_id=fingerprint.id)
            seen = window.observations
            if restarted(process, workload):
                seen = (*seen, _restart_of(process))
            state = window.device or (device.state if device is not None else None)
            windows.append(replace(window, workload=workload, device=state, observations=seen))
        ids = {w.config_id for w in windows}
        configs = {key: config for key, config in process.configs.items() if key in ids}
        return Parcel(windows=tuple(windows), fingerprints=fingerprints, configs=configs)

    def complete_recording(self, recording: Recording) -> Parcel:
        """A witness's windows, completed: it speaks of the agent's own pod, where agent and engine share one."""
        around, only = self._surroundings, self._devices().only
        shares = self._scope != "node"
        windows = [
            replace(
                window,
                workload=replace(
                    window.workload,
                    node=window.workload.node or around.node,
                    namespace=window.workload.namespace or (around.namespace if shares else None),
                    pod=window.workload.pod or (around.pod if shares else None),
                    container=window.workload.container or (around.container if shares else None),
                    gpu_index=only.index if only is not None else window.workload.gpu_index,
                    gpu_uuid=only.uuid if only is not None else window.workload.gpu_uuid,
                ),
            )
            for window in recording.windows
        ]
        return Parcel(windows=tuple(windows), fingerprints=recording.fingerprints, configs=recording.configs)

    def _workload(self, told: Workload, process: Process, device: Device | None) -> Workload:
        around = self._surroundings
        shares = self._shares_pod(process)
        name = process.name
        return replace(
            told,
            node=told.node or around.node,
            namespace=name.namespace if name else told.namespace or (around.namespace if shares else None),
            pod=name.pod if name else told.pod or (around.pod if shares else None),
            container=name.container if name else told.container or self._container(process, shares),
            pid=_pid(told.pid, process),
            gpu_index=device.index if device is not None else told.gpu_index,
            gpu_uuid=device.uuid if device is not None else told.gpu_uuid,
        )

    def _container(self, process: Process, shares: bool) -> str | None:
        """A container's name: the short id where nothing else is known, as Docker's tools print it."""
        place = process.place
        if place.container_id is not None and place != self._own_place:
            return place.container_id[:SHORT_ID]
        return self._surroundings.container if shares else None

    def _shares_pod(self, process: Process) -> bool:
        if self._scope != "auto":
            return self._scope == "pod"
        theirs, ours = process.place.pod_uid, self._own_place.pod_uid or self._surroundings.pod_uid
        return theirs is None or ours is None or theirs == ours

    @staticmethod
    def _device_of(told: Workload, process: Process, table: DeviceTable) -> Device | None:
        """The device by uuid, else by the process, else by there being one; never by the index.

        A process numbers the devices that CUDA_VISIBLE_DEVICES leaves it, so its 0 may be NVML's 3.
        """
        if told.gpu_uuid is not None:
            return table.by_uuid.get(told.gpu_uuid) or table.by_uuid.get(f"GPU-{told.gpu_uuid}")
        return table.of_process(process.pid) or table.only


def remember(process: Process, fingerprints: Mapping[str, Fingerprint], configs: Mapping[str, EngineConfig]) -> None:
    """Keep a process's snapshots, which come once, for its later windows; ids that do not fit are ignored."""
    process.fingerprints.update((key, value) for key, value in fingerprints.items() if key == value.id)
    process.configs.update((key, value) for key, value in configs.items() if key == value.id)
    while len(process.fingerprints) > REMEMBERED_SNAPSHOTS:
        process.fingerprints.popitem(last=False)
    while len(process.configs) > REMEMBERED_SNAPSHOTS:
        process.configs.popitem(last=False)


def complete_fingerprint(known: Fingerprint | None, device: Device | None, table: DeviceTable) -> Fingerprint | None:
    """A fingerprint with the device's model and driver where they were missing; None where nothing is known."""
    base = known or Fingerprint()
    model = base.gpu_model or (device.model if device is not None else None)
    full = replace(base, gpu_model=model, driver=base.driver or table.driver)
    return full if full != Fingerprint() else None


def _pid(told: int | None, process: Process) -> int | None:
    """The process's number here, where the sender speaks of itself; what it tells of others stays."""
    if process.pid is None or (told is not None and told not in (process.inner_pid, process.pid)):
        return told
    return process.pid


def _restart_of(process: Process) -> Observation:
    who = f"process {process.pid}" if process.pid is not None else "a new process"
    return Observation("process_restarted", f"{who} took the place of one that ended", 1, "agent")
