"""Options: one table, the same defaults in the settings, and sentences where a value cannot work."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from replaywatch.agent.delivery import collector_address, read_answer
from replaywatch.agent.options import (
    OPTIONS,
    AgentOptions,
    agent_options,
    allowed_uids,
    listen_address,
    socket_path,
    spool_folder,
)
from replaywatch.agent.serve import Agent
from replaywatch.agent.token import TokenFile
from replaywatch.contract.errors import ConfigurationError


def test_the_table_and_the_settings_agree() -> None:
    assert [o.field for o in OPTIONS] == [f.name for f in fields(AgentOptions)]
    assert agent_options({}, {}) == AgentOptions()


def test_values_come_from_the_command_line_then_the_environment() -> None:
    environment = {
        "REPLAYWATCH_AGENT_BATCH_SECONDS": "2.5",
        "REPLAYWATCH_AGENT_TOKEN": "t",
        "REPLAYWATCH_AGENT_SCOPE": "node",
    }
    options = agent_options({"scope": "pod", "token": "never from here"}, environment)
    assert (options.batch_seconds, options.scope, options.token) == (2.5, "pod", "t")


@pytest.mark.parametrize("given", [{"batch_seconds": "0"}, {"scope": "cluster"}, {"max_workloads": "x"}])
def test_bad_values_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="--"):
        agent_options(given, {})


def test_places_follow_the_environment() -> None:
    options = AgentOptions()
    assert socket_path(options, {"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/replaywatch/agent.sock")
    assert socket_path(options, {}) == Path("/run/replaywatch/agent.sock")
    assert socket_path(AgentOptions(socket=Path("/s")), {}) == Path("/s")
    assert spool_folder(options, {"STATE_DIRECTORY": "/var/lib/rw:/x"}) == Path("/var/lib/rw/spool")
    assert spool_folder(options, {"XDG_STATE_HOME": "/st"}) == Path("/st/replaywatch/spool")
    assert spool_folder(options, {"HOME": "/h"}) == Path("/h/.local/state/replaywatch/spool")


def test_addresses_are_read() -> None:
    assert listen_address(AgentOptions()) == ("127.0.0.1", 9497)
    assert listen_address(AgentOptions(listen="[::1]:80")) == ("::1", 80)
    assert listen_address(AgentOptions(listen=":80")) == ("127.0.0.1", 80)
    assert listen_address(AgentOptions(listen="off")) is None
    for bad in ("9497", "host:", "host:x", "host:99999"):
        with pytest.raises(ConfigurationError, match="host:port"):
            listen_address(AgentOptions(listen=bad))


def test_users_are_read() -> None:
    assert allowed_uids(AgentOptions()) == {os.geteuid(), 0}
    assert allowed_uids(AgentOptions(allow_uids="1000, 1001")) == {os.geteuid(), 0, 1000, 1001}
    assert allowed_uids(AgentOptions(allow_uids="any")) is None
    with pytest.raises(ConfigurationError, match="--allow-uids"):
        allowed_uids(AgentOptions(allow_uids="me"))


@pytest.mark.parametrize("url", ["host:8790", "ftp://h", "http://", "http://u:p@h", "http://h:99999999"])
def test_collector_addresses_that_cannot_work_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="collector-url"):
        collector_address(url)


@pytest.mark.parametrize("option", ["tls_ca_file", "tls_cert_file", "token_file"])
def test_files_that_are_not_there_are_said_at_the_start(short_path: Path, option: str) -> None:
    options = AgentOptions(
        socket=short_path / "s", listen="off", collector_url="https://h", spool_dir=short_path / "spool",
        **{option: short_path / "absent"},  # type: ignore[arg-type]
    )  # fmt: skip
    with pytest.raises(ConfigurationError):
        Agent(options)
    assert not (short_path / "s").exists()


def test_a_token_that_would_break_a_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="printable"):
        TokenFile("a\r\nX: y", None)
    (tmp_path / "token").write_text("two words")
    with pytest.raises(ConfigurationError, match="token file"):
        TokenFile(None, tmp_path / "token")


def test_a_token_file_that_vanishes_leaves_the_last_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    token = TokenFile(None, tmp_path / "token")
    (tmp_path / "token").unlink()
    assert token.header() == {"Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("status", "meaning", "reason"),
    [
        (200, "delivered", ""),
        (202, "delivered", ""),
        (302, "retry", "misaddressed"),
        (400, "rejected", ""),
        (401, "retry", "unauthorized"),
        (404, "retry", "misaddressed"),
        (408, "retry", "throttled"),
        (409, "retry", "version"),
        (413, "too_large", ""),
        (422, "rejected", ""),
        (429, "retry", "throttled"),
        (500, "retry", "server_error"),
        (503, "retry", "server_error"),
    ],
)
def test_every_answer_has_a_meaning(status: int, meaning: str, reason: str) -> None:
    outcome = read_answer(status, None, "text", 0)
    assert (outcome.meaning, outcome.reason) == (meaning, reason)
