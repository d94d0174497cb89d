from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.guarded_connect import AddressRefused, is_public, webhook_client

INSIDE = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:1::",
]


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_outside_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_an_address_that_leads_inside_is_not_connected_to_however_it_is_written(
    receiver: WebhookReceiver, host: str
) -> None:
    port = receiver.url.rpartition(":")[2].partition("/")[0]
    with (
        webhook_client(2, allow_private=False) as client,
        pytest.raises((httpx.ConnectError, httpx.InvalidURL)) as caught,
    ):
        client.post(f"http://{host}:{port}/hook", content=b"{}")
    assert receiver.received == []
    # What is no address at all is refused before it is looked up.
    assert isinstance(caught.value, (AddressRefused, httpx.InvalidURL))


@contextmanager
def resolving(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> Iterator[list[str]]:
    """A resolver that answers otherwise each time, as one under an attacker's control does."""
    asked: list[str] = []

    def answer(host: str, port: int, **_: object) -> list[tuple[object, object, int, str, tuple[str, int]]]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", answer)
        yield asked


def test_a_name_with_one_address_inside_is_refused(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    url = receiver.url.replace("127.0.0.1", "hooks.example")
    with (
        resolving(monkeypatch, [["93.184.215.14", "127.0.0.1"]]),
        webhook_client(2, allow_private=False) as client,
        pytest.raises(AddressRefused),
    ):
        client.post(url, content=b"{}")
    assert receiver.received == []


def test_a_name_that_changes_between_check_and_connect_wins_nothing(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Public when first asked, loopback ever after: the connection goes to what was checked, and nobody asks again.
    url = receiver.url.replace("127.0.0.1", "rebind.example")
    with resolving(monkeypatch, [["192.0.2.1"], ["127.0.0.1"]]) as asked, webhook_client(0.2, allow_private=False) as c:
        with pytest.raises(httpx.ConnectError):
            c.post(url, content=b"{}")
        with pytest.raises(httpx.ConnectError):
            c.post(url, content=b"{}")
    assert len(asked) == 2
    assert receiver.received == []


def test_a_private_address_is_used_where_that_is_allowed(receiver: WebhookReceiver) -> None:
    with webhook_client(2, allow_private=True) as client:
        assert client.post(receiver.url, content=b"{}").status_code == 200


def test_the_environments_proxies_are_not_used(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with webhook_client(2, allow_private=True) as client:
        assert client.post(receiver.url, content=b"{}").status_code == 200
