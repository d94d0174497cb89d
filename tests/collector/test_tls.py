from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from collector.conftest import Start
from collector.material import HEADERS, body
from collector.papers import make_papers, needs_openssl
from collector.test_batches import WINDOW
from replaywatch.collector.serve import CollectorHandle
from replaywatch.contract.errors import ConfigurationError


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_papers(tmp_path_factory.mktemp("papers"))


def serving(start: Start, papers: Path, *, mutual: bool = False) -> CollectorHandle:
    given = {"tls_client_ca": papers / "authority.pem"} if mutual else {}
    return start(tls_certificate=papers / "server.pem", tls_key=papers / "server.key", **given)


def client(papers: Path, who: str | None = None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(papers / "authority.pem"))
    if who is not None:
        context.load_cert_chain(papers / f"{who}.pem", papers / f"{who}.key")
    return httpx.Client(verify=context, trust_env=False, timeout=5)


@needs_openssl
def test_batches_travel_over_https(start: Start, papers: Path) -> None:
    handle = serving(start, papers)
    assert handle.url.startswith("https://")
    with client(papers) as agent:
        assert agent.post(f"{handle.url}/v1/batches", content=body([WINDOW], "k"), headers=HEADERS).status_code == 200
    with pytest.raises(httpx.HTTPError):
        httpx.get(handle.url.replace("https", "http") + "/healthz", timeout=5, trust_env=False)


@needs_openssl
def test_mutual_tls_lets_in_whom_its_authority_signed_and_nobody_else(start: Start, papers: Path) -> None:
    handle = serving(start, papers, mutual=True)
    with client(papers, "client") as agent:
        assert agent.get(f"{handle.url}/healthz").status_code == 200
    for who in (None, "foreign"):
        with client(papers, who) as stranger, pytest.raises(httpx.HTTPError):
            stranger.get(f"{handle.url}/healthz")
    with client(papers, "client") as agent:
        assert agent.get(f"{handle.url}/healthz").status_code == 200


@needs_openssl
def test_a_cookie_of_a_page_over_https_travels_only_there(start: Start, papers: Path) -> None:
    from replaywatch.collector.tokens import create_token

    handle = serving(start, papers)
    secret = create_token(handle.collector.store, "ann", ["read"], 1)
    handle.collector.loops["tokens"].wake()
    with client(papers) as browser:
        for _ in range(100):
            answer = browser.post(f"{handle.url}/login", data={"token": secret})
            if answer.status_code == 303:
                break
    assert "Secure" in answer.headers["Set-Cookie"]


def test_half_of_the_papers_are_refused(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs both"):
        start(tls_certificate=tmp_path / "x")
    with pytest.raises(ConfigurationError, match="there is no file"):
        start(tls_certificate=tmp_path / "x", tls_key=tmp_path / "y")
