"""AdmissionReview in, AdmissionReview out (admission.k8s.io/v1). Every pod is allowed, whatever happens here.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final

from replaywatch.admission.changes import Additions, Change, change_of
from replaywatch.admission.pod import Json, object_at, text_at
from replaywatch.contract.errors import WireError

VERSION: Final = "admission.k8s.io/v1"
# What the API server shows of a warning.
WARNING_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The answer, and what to write into the log. Shape: `body` is JSON."""

    body: bytes
    pod: str
    change: Change


def review(body: bytes, additions: Additions) -> Reviewed:
    """Answer one question. Raises: WireError for a body that is no AdmissionReview of this version."""
    request = _request(body)
    pod = object_at(request, "object")
    is_new_pod = text_at(object_at(request, "kind"), "kind") == "Pod" and text_at(request, "operation") == "CREATE"
    change = change_of(pod, additions) if is_new_pod and not text_at(request, "subResource") else Change()
    answer: dict[str, object] = {"uid": text_at(request, "uid"), "allowed": True}
    if change.operations:
        patch = json.dumps(change.operations).encode()
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    if change.warnings:
        answer["warnings"] = [text[:WARNING_MAX] for text in change.warnings]
    content = {"apiVersion": VERSION, "kind": "AdmissionReview", "response": answer}
    return Reviewed(json.dumps(content).encode(), _name(request, pod), change)


def _request(body: bytes) -> Json:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise WireError("the body is no JSON; Kubernetes sends an AdmissionReview") from None
    if not isinstance(content, dict) or content.get("kind") != "AdmissionReview":
        raise WireError("the body is no AdmissionReview")
    if content.get("apiVersion") != VERSION:
        raise WireError(f"this release answers {VERSION} only; set admissionReviewVersions to [v1]")
    request = object_at(content, "request")
    if not text_at(request, "uid"):
        raise WireError("the AdmissionReview has no request with a uid")
    return request


def _name(request: Json, pod: Json) -> str:
    metadata = object_at(pod, "metadata")
    name = text_at(metadata, "name") or text_at(metadata, "generateName") + "*"
    return f"{text_at(request, 'namespace')}/{name}"
