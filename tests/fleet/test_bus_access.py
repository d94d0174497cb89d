from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.papers import make_papers, needs_openssl
from fleet.nats_cluster import NatsCluster, NoNats
from replaywatch.collector.bus import Bus
from replaywatch.collector.bus_access import BusAccess, bus_access
from replaywatch.collector.options import CollectorOptions
from replaywatch.contract.errors import ConfigurationError, StoreError

pytestmark = needs_openssl
TLS = 'tls {{ cert_file: "{0}/server.pem", key_file: "{0}/server.key", ca_file: "{0}/authority.pem", verify: true }}\n'
PASSWORD = "a-password-in-nobodys-log"
USER = f'authorization {{ user: replaywatch, password: "{PASSWORD}" }}\n'


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_papers(tmp_path_factory.mktemp("papers"))


def server(more: str) -> Iterator[NatsCluster]:
    try:
        it = NatsCluster(nodes=1, more=more)
    except NoNats as error:
        pytest.skip(str(error))
    it.start()
    yield it
    it.stop()


@pytest.fixture(scope="module")
def locked(papers: Path) -> Iterator[NatsCluster]:
    """A server that asks for a certificate, a user and a password."""
    yield from server(TLS.format(papers) + USER)


@pytest.fixture(scope="module")
def bare() -> Iterator[NatsCluster]:
    """A server that asks for nothing and offers no TLS."""
    yield from server("")


def full(papers: Path, cluster: NatsCluster) -> CollectorOptions:
    return CollectorOptions(
        bus=cluster.servers,
        bus_user="replaywatch",
        bus_password=PASSWORD,
        bus_tls_ca=papers / "authority.pem",
        bus_tls_certificate=papers / "client.pem",
        bus_tls_key=papers / "client.key",
    )


def publish(options: CollectorOptions, seconds: float = 5) -> None:
    """Connect as the options say, and put one message onto the bus."""
    bus = Bus(options.bus or "", bus_access(options), seconds)
    try:
        bus.start()
        bus.call(bus.publish(0, b"content", {})).result(10)
    finally:
        bus.close()


def test_certificate_user_and_password_open_the_bus(papers: Path, locked: NatsCluster) -> None:
    publish(full(papers, locked))


@pytest.mark.parametrize(
    ("changed", "told"),
    # A server that refuses says so and closes; which of the two is seen first is a matter of luck.
    [
        ({"bus_password": "wrong"}, "(?i)authorization|reset|pipe"),
        ({"bus_user": None, "bus_password": None}, "(?i)authorization|reset|pipe"),
        ({"bus_tls_certificate": None, "bus_tls_key": None}, "(?i)ssl|eof|connection|certificate"),
        ({"bus_tls_certificate": "foreign.pem", "bus_tls_key": "foreign.key"}, "(?i)ssl|eof|connection|certificate"),
        ({"bus_tls_ca": "stranger.pem"}, "(?i)certificate"),
    ],
)
def test_whoever_lacks_one_of_them_is_told_so_and_not_let_in(
    papers: Path, locked: NatsCluster, changed: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    placed = {k: papers / v if k.startswith("bus_tls") and v else v for k, v in changed.items()}
    with pytest.raises(StoreError, match=told) as raised:
        publish(replace(full(papers, locked), **placed), 2.0)
    assert "--bus" in str(raised.value)
    assert PASSWORD not in str(raised.value) + caplog.text


def test_a_bus_that_offers_no_tls_gets_no_password(papers: Path, bare: NatsCluster) -> None:
    with pytest.raises(StoreError, match="does not offer TLS"):
        publish(full(papers, bare), 2.0)
    publish(CollectorOptions(bus=bare.servers))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bus_user": "replaywatch"}, "--bus-password-file"),
        ({"bus_tls_certificate": Path("a.pem")}, "both"),
        ({"bus_tls_ca": Path("nowhere.pem")}, "nowhere.pem"),
        ({"bus_password_file": Path("nowhere")}, "nowhere"),
    ],
)
def test_half_of_an_access_is_refused_at_the_start(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        bus_access(CollectorOptions(bus="nats://127.0.0.1:4222", **given))


def test_a_password_without_a_user_is_a_token_and_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{PASSWORD}\n")
    options = CollectorOptions(bus="nats://127.0.0.1:4222", bus_password_file=tmp_path / "token")
    access = bus_access(options)
    assert access.arguments() == {"token": PASSWORD}
    assert PASSWORD not in repr(access) + repr(replace(options, bus_password=PASSWORD))
    assert BusAccess().arguments() == {}
