"""What admission.k8s.io/v1 asks of a webhook's answer, as a check, and questions as the API server sends them.

Source: k8s.io/api/admission/v1/types.go, and what the API server does with it: apiserver's webhook/request and
mutating dispatcher refuse another version, kind or uid, a patch without its type, and a patch that is not allowed.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import jsonpatch

VERSION = "admission.k8s.io/v1"
FIELDS = {"uid", "allowed", "status", "patch", "patchType", "auditAnnotations", "warnings"}


def question(pod: Any, operation: str = "CREATE", **given: Any) -> dict[str, Any]:
    """An AdmissionReview about a pod."""
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "inference",
        "operation": operation,
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["system:x"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": VERSION, "request": {**request, **given}}


def answer_faults(content: Any, asked: Any) -> list[str]:
    """Why the API server would not take an answer; empty when it would."""
    if not isinstance(content, dict) or set(content) != {"kind", "apiVersion", "response"}:
        return ["no AdmissionReview with a response and nothing else"]
    found = [] if (content["kind"], content["apiVersion"]) == ("AdmissionReview", VERSION) else ["kind or version"]
    response = content["response"]
    if not isinstance(response, dict):
        return [*found, "response is no object"]
    found += [f"unknown {name}" for name in set(response) - FIELDS]
    if response.get("uid") != asked["request"]["uid"]:
        found.append("uid is not that of the question")
    if not isinstance(response.get("allowed"), bool):
        found.append("allowed is no boolean")
    if ("patch" in response) != (response.get("patchType") == "JSONPatch"):
        found.append("patch and patchType go together")
    warnings = response.get("warnings", [])
    if not isinstance(warnings, list) or any(not isinstance(w, str) or not 0 < len(w) <= 256 for w in warnings):
        found.append("warnings are texts of up to 256 characters")
    return found


def patched(pod: Any, content: Any) -> Any:
    """The pod as the API server goes on with it, by another implementation of RFC 6902 than ours (which has none)."""
    patch = content["response"].get("patch")
    if patch is None:
        return pod
    return jsonpatch.JsonPatch(json.loads(base64.b64decode(patch, validate=True))).apply(pod)
