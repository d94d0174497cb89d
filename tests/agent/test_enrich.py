"""Completing windows: the kernel and NVML go before what a sender says; the agent's own pod only fills gaps."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.frames import CONFIG, FINGERPRINT, window, without_snapshots
from agent.nvml_stand_in import StandIn, recorded
from replaywatch.agent.admission import Admitted
from replaywatch.agent.cgroup import ContainerName, Place, name_of, parse_cgroup, place_of
from replaywatch.agent.devices import DeviceTable, Nvml
from replaywatch.agent.downward import Surroundings, read_surroundings
from replaywatch.agent.enrich import Enricher, Parcel, Scope
from replaywatch.agent.inlet import Sender
from replaywatch.agent.processes import Process, Processes
from replaywatch.contract.window import Window, Workload
from replaywatch.contract.wire import Batch

H200 = "GPU-292be603-ad89-3843-4b02-5c4ef53d13ec"
POD, OTHER_POD = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
CONTAINER = "ab" * 32
MINE = Surroundings(node="node-1", namespace="ns", pod="my-pod", container="engine", pod_uid=POD)
BLIND = DeviceTable(blind="none")


def never(_process: Process, _workload: Workload) -> bool:
    return False


def process(pid: int | None = 419, place: Place | None = None, name: ContainerName | None = None) -> Process:
    return Process(key=("kernel", 0, pid), pid=pid, first_ns=0, last_ns=0, place=place or Place(), name=name)


def complete(
    *windows: Window,
    sender: Process | None = None,
    table: DeviceTable = BLIND,
    scope: Scope = "auto",
    own: Place | None = None,
    around: Surroundings = MINE,
    restarted: Callable[[Process, Workload], bool] = never,
) -> Parcel:
    batch = Batch(
        key="k",
        sent_ns=0,
        windows=windows,
        fingerprints={FINGERPRINT.id: FINGERPRINT},
        configs={CONFIG.id: CONFIG, "wrong": CONFIG},
    )
    enricher = Enricher(around, scope, own or Place(), lambda: table)
    return enricher.complete(Admitted(batch, sender or process(), 1), restarted)


def workload(parcel: Parcel) -> Workload:
    return parcel.windows[0].workload


def h200() -> DeviceTable:
    return Nvml(StandIn(recorded())).read()


def test_a_sidecar_gives_its_own_pod_to_windows_without_one() -> None:
    got = workload(complete(without_snapshots(0, pod=None)))
    assert (got.node, got.namespace, got.pod, got.container) == ("node-1", "ns", "my-pod", "engine")


def test_what_a_probe_knows_of_its_pod_stays() -> None:
    got = workload(complete(without_snapshots(0, pod="its-pod", container="its-container")))
    assert (got.pod, got.container, got.namespace) == ("its-pod", "its-container", "ns")


@pytest.mark.parametrize(
    ("scope", "place"), [("node", Place()), ("auto", Place(OTHER_POD, CONTAINER))], ids=["node", "another pod"]
)
def test_a_daemon_does_not_give_its_own_pod_to_others(scope: Scope, place: Place) -> None:
    got = workload(complete(without_snapshots(0, pod=None), sender=process(place=place), scope=scope, own=Place(POD)))
    assert (got.node, got.namespace, got.pod) == ("node-1", None, None)
    assert got.container == (CONTAINER[:12] if place.container_id else None)


def test_the_kubelets_names_go_before_what_a_sender_claims() -> None:
    name = ContainerName("real-pod", "real-ns", "real-container")
    sender = process(place=Place(OTHER_POD, CONTAINER), name=name)
    got = workload(complete(without_snapshots(0, pod="stolen", namespace="stolen"), sender=sender))
    assert (got.namespace, got.pod, got.container) == ("real-ns", "real-pod", "real-container")


@pytest.mark.parametrize(
    ("told", "kernel", "inner", "expected"),
    [
        (None, 419, 1, 419),
        (1, 419, 1, 419),
        (419, 419, 419, 419),
        (77, 419, 1, 77),
        (1, None, None, 1),
        (None, None, None, None),
    ],
)
def test_the_pid_is_the_kernels_unless_a_sender_speaks_of_others(
    told: int | None, kernel: int | None, inner: int | None, expected: int | None
) -> None:
    sender = process(kernel)
    sender.inner_pid = inner
    assert workload(complete(without_snapshots(0, pid=told), sender=sender)).pid == expected


def test_the_device_is_found_by_process() -> None:
    table = h200()
    two = replace(table, devices=(*table.devices, replace(table.devices[0], index=1, uuid="GPU-2", pids=frozenset())))
    parcel = complete(without_snapshots(0, gpu_index=None), sender=process(419), table=two)
    assert (workload(parcel).gpu_index, workload(parcel).gpu_uuid) == (0, H200)
    assert parcel.windows[0].device == table.devices[0].state
    assert workload(complete(without_snapshots(0), sender=process(5), table=two)).gpu_uuid is None


def test_the_only_device_is_everybodys() -> None:
    assert workload(complete(without_snapshots(0), sender=process(5), table=h200())).gpu_uuid == H200


@pytest.mark.parametrize("told", [H200, H200.removeprefix("GPU-")])
def test_an_index_seen_through_visible_devices_becomes_nvmls(told: str) -> None:
    table = h200()
    moved = replace(table.devices[0], index=3)
    table = replace(table, devices=(moved,), by_uuid={H200: moved})
    got = workload(complete(without_snapshots(0, gpu_index=0, gpu_uuid=told), table=table))
    assert (got.gpu_index, got.gpu_uuid) == (3, H200)


def test_an_unknown_device_stays_as_told() -> None:
    parcel = complete(without_snapshots(0, gpu_index=2, gpu_uuid="GPU-elsewhere"), table=h200())
    assert (workload(parcel).gpu_index, workload(parcel).gpu_uuid) == (2, "GPU-elsewhere")
    assert parcel.windows[0].device is None


def test_a_fingerprint_gains_model_and_driver_and_a_new_id() -> None:
    parcel = complete(window(0), table=h200())
    full = replace(FINGERPRINT, gpu_model="NVIDIA H200", driver="580.159.04")
    assert parcel.windows[0].fingerprint_id == full.id
    assert parcel.fingerprints == {full.id: full}
    assert parcel.configs == {CONFIG.id: CONFIG}


def test_a_fingerprint_seen_before_the_agent_began_keeps_its_id() -> None:
    odd = replace(window(0), fingerprint_id="0123456789abcdef")
    parcel = complete(odd, table=h200())
    assert parcel.windows[0].fingerprint_id == "0123456789abcdef"
    assert parcel.fingerprints == {}


def test_a_window_without_fingerprint_gets_what_the_device_says() -> None:
    parcel = complete(without_snapshots(0), table=h200())
    (only,) = parcel.fingerprints.values()
    assert (only.gpu_model, only.driver) == ("NVIDIA H200", "580.159.04")
    assert complete(without_snapshots(0)).windows[0].fingerprint_id is None


def test_snapshots_come_once_and_are_kept_for_later_windows() -> None:
    sender = process()
    complete(window(0), sender=sender)
    enricher = Enricher(MINE, "auto", Place(), lambda: BLIND)
    later = enricher.complete(Admitted(Batch(key="l", sent_ns=0, windows=(window(1),)), sender, 2), never)
    assert later.configs == {CONFIG.id: CONFIG}
    assert later.fingerprints == {FINGERPRINT.id: FINGERPRINT}


def test_a_restart_is_an_observation() -> None:
    (seen,) = complete(window(0), restarted=lambda _p, _w: True).windows[0].observations
    assert seen.kind == "process_restarted"


WHO = Workload(pod="p", container="c", rank=0, pid=1)
UNSEEN = Sender(None, 1000)


def test_a_process_that_takes_an_ended_ones_place_is_noticed_once() -> None:
    processes = Processes(silence_ns=100)
    first = processes.sender(UNSEEN, "1-aa-0", 1, 0)
    assert not processes.takes_place(first, WHO)
    assert processes.gone(101) == [first]
    second = processes.sender(UNSEEN, "1-bb-0", 1, 102)
    assert processes.takes_place(second, WHO)
    assert not processes.takes_place(second, WHO)
    assert not processes.takes_place(second, replace(WHO, rank=1))


def test_the_first_process_of_a_restarted_container_replaces_the_one_with_its_number() -> None:
    processes = Processes(silence_ns=10**15)
    first = processes.sender(UNSEEN, "1-aa-7", 1, 0)
    processes.takes_place(first, WHO)
    assert processes.sender(UNSEEN, "1-aa-8", 1, 1) is first
    second = processes.sender(UNSEEN, "1-bb-0", 1, 2)
    assert second is not first
    assert processes.takes_place(second, WHO)
    assert processes.gone(3) == [first]


def test_pids_of_different_pods_do_not_replace_each_other() -> None:
    processes = Processes(silence_ns=10**15)
    first = processes.sender(UNSEEN, "1-aa-0", 1, 0)
    second = processes.sender(UNSEEN, "1-bb-0", 1, 0)
    assert not processes.takes_place(first, WHO)
    assert not processes.takes_place(second, replace(WHO, pod="q"))
    assert processes.gone(1) == []


def test_a_sibling_with_the_same_role_is_no_restart() -> None:
    processes = Processes(silence_ns=10**15)
    first = processes.sender(UNSEEN, "1-aa-0", 1, 0)
    second = processes.sender(UNSEEN, "2-aa-0", 2, 0)
    assert not processes.takes_place(first, WHO)
    assert not processes.takes_place(second, replace(WHO, pid=2))
    assert processes.gone(1) == []


def test_a_process_that_ended_is_noticed_at_once_and_its_number_is_free() -> None:
    processes = Processes(silence_ns=10**15)
    child = subprocess.Popen(["sleep", "60"])
    met = processes.sender(Sender(child.pid, 0), "k", None, 0)
    assert not met.ended
    assert processes.sender(Sender(child.pid, 0), "k", None, 1) is met
    child.kill()
    child.wait()
    assert met.ended
    assert processes.sender(Sender(child.pid, 0), "k", None, 2) is not met
    assert processes.gone(3) == [met]
    processes.close()


@pytest.mark.parametrize(
    ("text", "pod", "container"),
    [
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
            f"{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
            POD,
            CONTAINER,
        ),
        (f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-{CONTAINER}.scope", POD, CONTAINER),
        (f"11:memory:/kubepods/besteffort/pod{POD}/{CONTAINER}\n0::/\n", POD, CONTAINER),
        (f"0::/../../pod{POD}/{CONTAINER}", POD, CONTAINER),
        (f"0::/system.slice/docker-{CONTAINER}.scope", None, CONTAINER),
        (f"12:cpu:/docker/{CONTAINER}\n", None, CONTAINER),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope/container", None, CONTAINER),
        ("0::/", None, None),
        ("0::/user.slice/user-1000.slice/session-2.scope", None, None),
        ("", None, None),
    ],
)
def test_cgroup_paths_name_pod_and_container(text: str, pod: str | None, container: str | None) -> None:
    assert parse_cgroup(text) == Place(pod, container)


@given(st.text())
def test_any_cgroup_text_gives_a_place(text: str) -> None:
    place = parse_cgroup(text)
    assert place.container_id is None or len(place.container_id) == 64


def test_a_process_that_cannot_be_seen_has_no_place() -> None:
    assert place_of(2**22 + 7) == Place()


def test_the_kubelets_links_name_a_container(tmp_path: Path) -> None:
    (tmp_path / f"vllm-7d9f-x2x_prod_engine-{CONTAINER}.log").symlink_to("/nowhere")
    (tmp_path / f"other_ns_c-{'cd' * 32}.log").symlink_to("/nowhere")
    assert name_of(CONTAINER, tmp_path) == ContainerName("vllm-7d9f-x2x", "prod", "engine")
    assert name_of("ef" * 32, tmp_path) is None
    assert name_of(CONTAINER, tmp_path / "absent") is None


def test_the_downward_api_is_read_from_variables_then_files(tmp_path: Path) -> None:
    (tmp_path / "podname").write_text("from-file\n")
    (tmp_path / "namespace").write_text("ns\n")
    got = read_surroundings({"POD_NAME": "from-variable", "NODE_NAME": "n"}, tmp_path, hostname="h")
    assert (got.pod, got.namespace, got.node, got.container) == ("from-variable", "ns", "n", None)
    assert read_surroundings({}, tmp_path, hostname="h").pod == "from-file"


def test_a_hostname_is_a_node_only_outside_pods(tmp_path: Path) -> None:
    assert read_surroundings({}, tmp_path, hostname="box").node == "box"
    assert read_surroundings({"POD_NAME": "p"}, tmp_path, hostname="p").node is None


def test_a_container_without_a_pod_is_not_believed(tmp_path: Path) -> None:
    assert read_surroundings({"CONTAINER_NAME": "box-7"}, tmp_path).container is None
    assert read_surroundings({"CONTAINER_NAME": "c", "POD_NAME": "p"}, tmp_path).container == "c"
