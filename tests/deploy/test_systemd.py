"""The systemd units: accepted by systemd's own checker, hardened by its own measure, true to the programs' options."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from deploy.programs import DEPLOY, output_of, program
from replaywatch.agent.options import OPTIONS as AGENT_OPTIONS
from replaywatch.collector.options import OPTIONS as COLLECTOR_OPTIONS

UNITS = DEPLOY / "systemd"
TABLES = {"agent": AGENT_OPTIONS, "collector": COLLECTOR_OPTIONS}
# Of 100, where systemd calls 50 to 100 exposed.
MOST_EXPOSURE = 25


def unit(command: str) -> Path:
    return UNITS / f"replaywatch-{command}.service"


@pytest.mark.parametrize("command", TABLES)
def test_systemd_accepts_the_unit(command: str, tmp_path: Path) -> None:
    checker = program("systemd-analyze", "systemd")
    copy = tmp_path / unit(command).name
    copy.write_text(unit(command).read_text().replace("/opt/replaywatch/bin/replaywatch", sys.executable))
    assert output_of([checker, "verify", "--man=no", str(copy)]) == ""


@pytest.mark.parametrize("command", TABLES)
def test_the_unit_is_hardened_by_systemds_own_measure(command: str) -> None:
    checker = program("systemd-analyze", "systemd")
    output_of([checker, "security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSURE}", str(unit(command))])


@pytest.mark.parametrize("command", TABLES)
def test_every_setting_of_the_unit_and_its_example_is_an_option(command: str) -> None:
    known = {o.variable(command): o for o in TABLES[command]}
    text = unit(command).read_text() + (UNITS / f"{command}.env").read_text()
    settings = re.findall(r"(REPLAYWATCH_[A-Z_]+)=([^\s.]\S*)", text)
    assert settings
    for name, value in settings:
        if value != "...,":
            known[name].read(value, name)


@pytest.mark.parametrize("command", TABLES)
def test_what_the_program_writes_lies_in_a_folder_that_systemd_makes(command: str) -> None:
    text = unit(command).read_text()
    folders = [f"/var/lib/{name}" for name in re.findall(r"^StateDirectory=(\S+)", text, re.M)]
    folders += [f"/run/{name}" for name in re.findall(r"^RuntimeDirectory=(\S+)", text, re.M)]
    written = re.findall(r"=(?:sqlite:///)?(/(?:var/lib|run)/\S+)", text)
    assert written
    for path in written:
        assert any(path.startswith(f"{folder}/") for folder in folders), path


def test_the_user_is_one_that_sysusers_makes(tmp_path: Path) -> None:
    users = re.findall(r"^u (\S+)", (UNITS / "replaywatch.sysusers").read_text(), re.M)
    for command in TABLES:
        assert re.findall(r"^User=(\S+)", unit(command).read_text(), re.M) == users
    folder = tmp_path / "usr" / "lib" / "sysusers.d"
    folder.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    shutil.copy(UNITS / "replaywatch.sysusers", folder / "replaywatch.conf")
    output_of([program("systemd-sysusers", "systemd"), f"--root={tmp_path}"])
    assert "replaywatch:" in (tmp_path / "etc" / "passwd").read_text()
