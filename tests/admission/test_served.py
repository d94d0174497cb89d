"""The webhook as Kubernetes meets it: its own program, TLS, and a certificate that is renewed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from admission.pods import PODS, pod
from admission.rules import answer_faults, patched, question
from replaywatch.admission.options import AdmissionOptions, settings
from replaywatch.admission.serve import BODY_MAX, AdmissionHandle, start_in_thread
from replaywatch.contract.errors import ConfigurationError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make certificates")
ROOT = Path(__file__).parents[2]
# As the chart's certificates are made for.
HOST = "replaywatch-admission.gpu-monitoring.svc"
IMAGE = "registry.example.com/replaywatch/probe:0.1.0"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)


def certify(folder: Path, serial: int) -> None:
    """A new key and certificate of the folder's authority, in place of the old ones."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(folder, "req", *key, "-keyout", "new.key", "-out", "new.csr", "-subj", "/CN=admission")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", str(serial), "-days", "2", "-extfile", "names")
    openssl(folder, "x509", "-req", "-in", "new.csr", *signed, "-out", "new.crt")
    os.replace(folder / "new.key", folder / "tls.key")
    os.replace(folder / "new.crt", folder / "tls.crt")


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """A folder as a mounted secret: ca.crt, tls.crt, tls.key."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key")
    openssl(tmp_path, "req", "-x509", *key, "-out", "ca.crt", "-days", "2", "-subj", "/CN=authority")
    (tmp_path / "names").write_text(f"subjectAltName=DNS:{HOST}\n")
    certify(tmp_path, 1)
    return tmp_path


@pytest.fixture
def served(papers: Path) -> Iterator[AdmissionHandle]:
    options = AdmissionOptions(papers / "tls.crt", papers / "tls.key", IMAGE, port=0, tls_look_seconds=0.05)
    handle = start_in_thread(options)
    yield handle
    handle.stop()


def client(papers: Path) -> httpx.Client:
    """One that checks the certificate against the authority, as the API server does with caBundle."""
    context = ssl.create_default_context(cafile=str(papers / "ca.crt"))
    return httpx.Client(verify=context, trust_env=False, timeout=10)


def ask(papers: Path, url: str, content: Any) -> httpx.Response:
    """Send what the API server sends, by the name of the service."""
    with client(papers) as api_server:
        return api_server.post(
            f"{url}/mutate?timeout=5s",
            content=content if isinstance(content, bytes) else json.dumps(content).encode(),
            headers={"Content-Type": "application/json", "Host": HOST},
            extensions={"sni_hostname": HOST},
        )


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_changed_over_tls(papers: Path, served: AdmissionHandle, name: str) -> None:
    asked = question(PODS[name])
    answer = ask(papers, served.url, asked)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer_faults(answer.json(), asked) == []
    assert patched(PODS[name], answer.json())["spec"]["initContainers"][0]["image"] == IMAGE


def test_a_pod_without_the_label_is_allowed_as_it_is(papers: Path, served: AdmissionHandle) -> None:
    asked = question(pod(labels={}))
    answer = ask(papers, served.url, asked).json()
    assert answer["response"] == {"uid": asked["request"]["uid"], "allowed": True}


def test_what_cannot_be_answered_is_an_error_that_kubernetes_ignores(papers: Path, served: AdmissionHandle) -> None:
    assert ask(papers, served.url, b"{").status_code == 400
    assert ask(papers, served.url, b" " * (BODY_MAX + 1)).status_code == 413
    with client(papers) as api_server:
        there = {"headers": {"Host": HOST}, "extensions": {"sni_hostname": HOST}}
        assert api_server.get(f"{served.url}/mutate", **there).status_code == 405
        assert api_server.get(f"{served.url}/healthz", **there).text == "ok\n"


def test_a_stranger_to_its_authority_does_not_speak_to_it(tmp_path: Path, served: AdmissionHandle) -> None:
    with httpx.Client(trust_env=False) as stranger, pytest.raises(httpx.ConnectError, match="certificate"):
        stranger.get(f"{served.url}/healthz")
    with pytest.raises(httpx.HTTPError):
        httpx.get(served.url.replace("https", "http") + "/healthz", trust_env=False)


def shown(papers: Path, url: str) -> int:
    """The serial number of the certificate that new connections get."""
    import socket

    context = ssl.create_default_context(cafile=str(papers / "ca.crt"))
    host, port = url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as encrypted,
    ):
        found = encrypted.getpeercert()
    assert found is not None
    return int(str(found["serialNumber"]), 16)


def test_a_renewed_certificate_is_taken_without_a_restart(papers: Path, served: AdmissionHandle) -> None:
    assert shown(papers, served.url) == 1
    # A key that does not fit, as between the two files of a renewal, leaves the old pair in use.
    old = (papers / "tls.key").read_bytes()
    (papers / "tls.key").write_bytes((papers / "ca.key").read_bytes())
    time.sleep(0.3)
    assert shown(papers, served.url) == 1
    (papers / "tls.key").write_bytes(old)
    certify(papers, 2)
    end = time.monotonic() + 10
    while shown(papers, served.url) != 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert ask(papers, served.url, question(PODS["bare"])).status_code == 200


def test_the_command_serves_and_ends_by_a_signal(papers: Path) -> None:
    given = {"HOST": "127.0.0.1", "PORT": "0", "TLS_CERTIFICATE": papers / "tls.crt", "TLS_KEY": papers / "tls.key"}
    variables = {f"REPLAYWATCH_ADMISSION_{name}": str(value) for name, value in given.items()}
    path = ":".join(str(ROOT / part) for part in ("agent", "detectors", "collector"))
    process = subprocess.Popen(
        [sys.executable, "-m", "replaywatch.cli.main", "admission", "--probe-image", IMAGE],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", **variables},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "the webhook serves at" in line)
        url = line.split("serves at ")[1].split("/mutate")[0]
        assert ask(papers, url, question(PODS["bare"])).status_code == 200
        assert any("inference/vllm-* is given the probe" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def test_options_that_are_missing_or_cannot_work_are_one_sentence(papers: Path) -> None:
    with pytest.raises(ConfigurationError, match="--tls-certificate is missing"):
        settings({}, {})
    with pytest.raises(ConfigurationError, match="cannot be used"):
        start_in_thread(AdmissionOptions(papers / "tls.crt", papers / "none.key", IMAGE, port=0))
