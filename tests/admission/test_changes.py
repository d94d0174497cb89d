"""What a labelled pod is given, and what it never loses."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.pods import LABELLED, PODS, container, pod
from admission.rules import answer_faults, patched, question
from replaywatch.admission.changes import ENTRY, Additions
from replaywatch.admission.review import review
from replaywatch.contract.errors import WireError

HERE = Additions("registry.example.com/replaywatch/probe:0.1.0", "IfNotPresent", "/run/replaywatch", 65532)
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def asked(thing: Any, **given_: Any) -> Any:
    """The answer to a question about a pod, after the API server's own checks."""
    content = question(copy.deepcopy(thing), **given_)
    answer = json.loads(review(json.dumps(content).encode(), HERE).body)
    assert answer_faults(answer, content) == []
    assert answer["response"]["allowed"] is True
    return answer


def after(thing: Any) -> Any:
    return patched(copy.deepcopy(thing), asked(thing))


def variables(one: Any) -> dict[str, Any]:
    return {e["name"]: e.get("value") for e in one.get("env", [])}


def watched(thing: Any) -> list[str]:
    """Names of the containers that have the probe."""
    return [c["name"] for c in thing["spec"]["containers"] if "REPLAYWATCH_PROBE" in variables(c)]


@pytest.mark.parametrize("name", PODS)
def test_a_labelled_pod_is_given_the_probe(name: str) -> None:
    made = after(PODS[name])
    server = made["spec"]["containers"][0]
    assert watched(made) == [server["name"]]
    assert variables(server)["PYTHONPATH"].split(":")[0] == ENTRY
    assert variables(server)["REPLAYWATCH_PROBE_SOCKET"] == "/run/replaywatch/agent.sock"
    mounts = {m["mountPath"]: m for m in server["volumeMounts"]}
    assert mounts["/opt/replaywatch"]["readOnly"] is mounts["/run/replaywatch"]["readOnly"] is True
    volumes = {v["name"] for v in made["spec"]["volumes"]}
    assert {m["name"] for m in server["volumeMounts"]} <= volumes
    first = made["spec"]["initContainers"][0]
    assert (first["image"], first["imagePullPolicy"]) == (HERE.image, HERE.pull_policy)
    assert 65532 in made["spec"]["securityContext"]["supplementalGroups"]


@pytest.mark.parametrize("name", PODS)
def test_the_changed_pod_is_one_that_kubernetes_takes(name: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="package kubernetes-validate is missing")
    kubernetes_validate.validate(after(PODS[name]), "1.31", strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_second_review_changes_nothing(name: str) -> None:
    once = after(PODS[name])
    answer = asked(once)
    assert "patch" not in answer["response"]
    assert "warnings" not in answer["response"]


@pytest.mark.parametrize("name", PODS)
def test_nothing_that_was_there_is_lost(name: str) -> None:
    """Taking away what was added gives the pod that was sent."""
    before, made = PODS[name], after(PODS[name])

    def kept(old: Any, new: Any, where: str) -> None:
        if isinstance(old, dict):
            for key, value in old.items():
                kept(value, new[key], f"{where}/{key}")
        elif isinstance(old, list):
            behind = new[len(new) - len(old) :] if where.endswith("initContainers") else new[: len(old)]
            for one, other in zip(old, behind, strict=True):
                kept(one, other, where)
        elif old != new:
            assert (where, new) == ("/spec/containers/env/value", f"{ENTRY}:{old}")

    kept(before, made, "")


def test_a_path_of_the_pods_own_comes_behind_the_probes() -> None:
    assert variables(after(PODS["full"])["spec"]["containers"][0])["PYTHONPATH"] == f"{ENTRY}:/app"
    assert variables(after(PODS["empty variable"])["spec"]["containers"][0])["PYTHONPATH"] == ENTRY


def test_a_path_that_the_image_sets_can_be_told_by_an_annotation() -> None:
    made = after(pod(annotations={"replaywatch/image-pythonpath": "/workspace:/app"}))
    assert variables(made["spec"]["containers"][0])["PYTHONPATH"] == f"{ENTRY}:/workspace:/app"


def test_a_process_that_was_told_to_go_without_the_probe_keeps_that() -> None:
    made = after(pod(container(env=[{"name": "REPLAYWATCH_PROBE", "value": "0"}])))
    assert variables(made["spec"]["containers"][0])["REPLAYWATCH_PROBE"] == "0"


@pytest.mark.parametrize(
    ("containers", "annotations", "names"),
    [
        ([container("proxy"), container(resources=GPU)], None, ["server"]),
        ([container("proxy"), container(resources={"requests": {"nvidia.com/mig-1g.10gb": 1}})], None, ["server"]),
        ([container("proxy"), container(resources={"claims": [{"name": "gpu"}]})], None, ["server"]),
        ([container(), container("proxy")], None, ["server"]),
        ([container("proxy"), container()], {"replaywatch/containers": "server"}, ["server"]),
        ([container("a"), container("b"), container("c")], {"replaywatch/containers": "a, c"}, ["a", "c"]),
    ],
)
def test_the_containers_that_serve_are_chosen(containers: Any, annotations: Any, names: list[str]) -> None:
    assert watched(after(pod(*containers, annotations=annotations))) == names


@pytest.mark.parametrize(
    "thing",
    [
        pod(labels={"app": "vllm"}),
        pod(labels={"replaywatch": "disabled"}),
        pod(labels=None),
        pod(volumes=[{"name": "replaywatch-probe", "emptyDir": {}}]),
        {},
        [],
        None,
        {"spec": {"containers": "none"}, "metadata": {"labels": LABELLED}},
    ],
)
def test_other_pods_are_left_alone(thing: Any) -> None:
    assert asked(thing)["response"].keys() == {"uid", "allowed"}


@pytest.mark.parametrize("given_", [{"operation": "UPDATE"}, {"subResource": "ephemeralcontainers"}])
def test_only_new_pods_are_changed(given_: dict[str, Any]) -> None:
    assert "patch" not in asked(PODS["bare"], **given_)["response"]


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (
            pod(container(env=[{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}])),
            "PYTHONPATH comes from elsewhere",
        ),
        (pod(container(volumeMounts=[{"name": "x", "mountPath": "/opt/replaywatch/"}])), "mounted at /opt/replaywatch"),
        (pod(annotations={"replaywatch/containers": "sever"}), "names sever, which is no container"),
        (pod(os={"name": "windows"}), "for Linux"),
    ],
)
def test_what_stands_in_the_way_is_said_and_the_pod_stays_as_it_is(thing: Any, words: str) -> None:
    response = asked(thing)["response"]
    assert "patch" not in response
    assert words in response["warnings"][0]
    assert len(response["warnings"][0]) <= 120


def test_one_container_in_the_way_does_not_hinder_the_other() -> None:
    blocked = container("a", volumeMounts=[{"name": "x", "mountPath": "/run/replaywatch"}])
    thing = pod(blocked, container("b"), annotations={"replaywatch/containers": "a,b"})
    assert watched(after(thing)) == ["b"]
    assert len(asked(thing)["response"]["warnings"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b"[" * 100_000,
        json.dumps({**question({}), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps({**question({}), "request": {}}).encode(),
    ],
)
def test_what_is_no_review_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(WireError, match=r"AdmissionReview|admissionReviewVersions"):
        review(body, HERE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(["PYTHONPATH", "REPLAYWATCH_PROBE", "replaywatch-probe", "replaywatch-socket", "x"])
THINGS = st.lists(st.fixed_dictionaries({}, optional={"name": NAMES | JSON, "value": JSON, "mountPath": JSON}) | JSON)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"name": NAMES | JSON, "env": THINGS | JSON, "volumeMounts": THINGS | JSON, "resources": JSON}
    ),
    max_size=3,
)


@given(
    CONTAINERS | JSON,
    st.fixed_dictionaries({}, optional={"volumes": THINGS | JSON, "securityContext": JSON, "initContainers": THINGS}),
)
def test_any_pod_is_answered_by_a_patch_that_applies_or_by_none(containers: Any, spec: Any) -> None:
    after({"metadata": {"labels": LABELLED}, "spec": {**spec, "containers": containers}})
