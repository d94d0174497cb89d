"""The chart: rendered by Helm's engine, strict against Kubernetes' schemas, unprivileged, and true to the programs."""

from __future__ import annotations

import base64
import json
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from admission.pods import PODS
from admission.rules import patched, question
from admission.test_served import ask
from deploy.manifests import (
    CHART,
    NAMESPACE,
    OPERATOR_MODELS,
    Object,
    check,
    containers,
    helm_python,
    notes,
    of_kind,
    pod_spec,
    render,
)
from deploy.programs import DEPLOY, output_of, program
from replaywatch.admission.changes import ENABLED, LABEL, Additions
from replaywatch.admission.options import OPTIONS as ADMISSION_OPTIONS
from replaywatch.admission.options import settings as webhook_settings
from replaywatch.admission.review import review
from replaywatch.admission.serve import start_in_thread as start_webhook
from replaywatch.agent.options import OPTIONS as AGENT_OPTIONS
from replaywatch.collector.options import OPTIONS as COLLECTOR_OPTIONS
from replaywatch.contract.options import Option
from replaywatch.probe.settings import option_rows

EVERYTHING: Object = {
    "serviceMonitor": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "grafanaDashboards": {"enabled": True},
    "imagePullSecrets": [{"name": "pull"}],
    "commonLabels": {"team": "inference"},
    "collector": {
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
        "webhook": {"url": "https://hooks.example.com/x", "existingSecret": "signing"},
        "publicUrl": "https://replaywatch.example.com",
        "dashboardUrl": "https://grafana.example.com/d/x",
        "extraEnv": [{"name": "REPLAYWATCH_COLLECTOR_OPEN_SEVERITY", "value": "info"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
    },
    "agent": {"spool": {"hostPath": "/var/lib/replaywatch"}, "runtimeClassName": "nvidia", "arguments": ["--listen=x"]},
    "admission": {
        "enabled": True,
        "namespaceSelector": {"matchLabels": {"team": "inference"}},
        "priorityClassName": "high",
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
    },
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]},
}
POSTGRES: Object = {
    "collector": {"replicas": 3, "database": {"existingSecret": "database"}, "bus": "nats://a:4222,nats://b:4222"}
}
AUTHORITY = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
CERT_MANAGER: Object = {"admission": {"enabled": True, "certManager": {"enabled": True}}}
OWN_ISSUER: Object = {
    "admission": {
        "enabled": True,
        "existingSecret": "webhook-tls",
        "caBundle": AUTHORITY,
        "certManager": {"enabled": True, "issuerRef": {"name": "internal", "kind": "ClusterIssuer"}},
    }
}
OWN_CERTIFICATE: Object = {"admission": {"enabled": True, "existingSecret": "webhook-tls", "caBundle": AUTHORITY}}
CASES: dict[str, Object] = {
    "defaults": {},
    "everything": EVERYTHING,
    "postgres": POSTGRES,
    "no collector": {"collector": {"enabled": False}, "agent": {"collectorUrl": "https://c.example.com"}},
    "no agents": {"agent": {"mode": "none"}},
    "no token": {"auth": {"enabled": False}, "networkPolicy": {"enabled": False}},
    "admission": {"admission": {"enabled": True}},
    "admission by cert-manager": CERT_MANAGER,
    "admission by another issuer": OWN_ISSUER,
    "admission with a certificate of its own": OWN_CERTIFICATE,
    "no volume": {"collector": {"persistence": {"enabled": False}}},
}
CLUSTER_WIDE = ("MutatingWebhookConfiguration",)
WORKLOADS = ("StatefulSet", "DaemonSet", "Deployment")
KNOWN_VARIABLES = {
    *(o.variable("agent") for o in AGENT_OPTIONS),
    *(o.variable("collector") for o in COLLECTOR_OPTIONS),
    *(o.variable("admission") for o in ADMISSION_OPTIONS),
    *(o.variable("probe") for o in option_rows()),
    "REPLAYWATCH_PROBE",
}


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_one_that_kubernetes_takes(case: str) -> None:
    objects = render(CASES[case])
    assert objects
    check(objects)
    for thing in objects:
        assert thing["kind"] in CLUSTER_WIDE or thing["metadata"]["namespace"] == NAMESPACE
        assert thing["metadata"]["labels"]["app.kubernetes.io/instance"] == "replaywatch"


def test_the_check_of_operator_objects_finds_a_field_that_does_not_exist() -> None:
    if not OPERATOR_MODELS.is_dir():
        pytest.skip("build/operator-models is not there (package cloudcoil-models-prometheus-operator)")
    monitor = of_kind(render(EVERYTHING), "ServiceMonitor", "agent")
    monitor["spec"]["endpoints"][0]["honourLabels"] = True
    with pytest.raises(AssertionError, match="does not know"):
        check([monitor])


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_has_no_warning(case: str) -> None:
    report = helm_python.lint(CHART, CASES[case], strict=True, kube_version="v1.31.0")
    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("case", CASES)
def test_no_two_objects_have_one_name(case: str) -> None:
    names = [(o["kind"], o["metadata"]["name"]) for o in render(CASES[case])]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES)
def test_programs_run_without_privileges_on_a_root_they_cannot_write(case: str) -> None:
    for thing in render(CASES[case]):
        if thing["kind"] not in WORKLOADS:
            continue
        spec = pod_spec(thing)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.get("hostNetwork")
        for container in containers(thing):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"]["drop"] == ["ALL"]
            if container["name"] != "own-socket-folder":
                assert "add" not in security["capabilities"]
                assert security.get("runAsUser", spec["securityContext"]["runAsUser"]) != 0


def test_nothing_is_allowed_to_speak_to_the_kubernetes_api() -> None:
    kinds = {o["kind"] for o in render(EVERYTHING)}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


@pytest.mark.parametrize("case", CASES)
def test_every_mount_has_its_volume_and_every_volume_a_mount(case: str) -> None:
    for thing in render(CASES[case]):
        if thing["kind"] not in WORKLOADS:
            continue
        claims = [c["metadata"]["name"] for c in thing["spec"].get("volumeClaimTemplates", [])]
        volumes = {v["name"] for v in pod_spec(thing).get("volumes", [])} | set(claims)
        mounts = {m["name"] for c in containers(thing) for m in c.get("volumeMounts", [])}
        assert volumes == mounts


@pytest.mark.parametrize("case", CASES)
def test_every_variable_is_an_option_of_its_program(case: str) -> None:
    for thing in render(CASES[case]):
        if thing["kind"] in WORKLOADS:
            for container in containers(thing):
                names = {e["name"] for e in container.get("env", []) if e["name"].startswith("REPLAYWATCH")}
                assert names <= KNOWN_VARIABLES


def environment(thing: Object) -> dict[str, str]:
    return {e["name"]: e["value"] for c in containers(thing) for e in c.get("env", []) if "value" in e}


@pytest.mark.parametrize("case", CASES)
def test_the_programs_accept_the_values_that_the_chart_gives_them(case: str) -> None:
    tables: dict[str, tuple[Option, ...]] = {
        "agent": AGENT_OPTIONS,
        "collector": COLLECTOR_OPTIONS,
        "admission": ADMISSION_OPTIONS,
    }
    for thing in render(CASES[case]):
        if thing["kind"] in WORKLOADS:
            given = environment(thing)
            for command, table in tables.items():
                for option in table:
                    if (value := given.get(option.variable(command))) is not None:
                        option.read(value, option.name)


def test_selectors_find_their_pods_and_no_others() -> None:
    objects = render(EVERYTHING)
    pods = {
        part: of_kind(objects, kind, part)["spec"]["template"]["metadata"]["labels"]
        for part, kind in (("collector", "StatefulSet"), ("agent", "DaemonSet"), ("admission", "Deployment"))
    }
    for thing in objects:
        spec = thing.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if thing["kind"] == "ServiceMonitor" or selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        part = thing["metadata"]["name"].rsplit("-", 1)[-1]
        assert {p for p, labels in pods.items() if wanted.items() <= labels.items()} == {part}


def test_monitors_find_the_services_and_keep_the_workloads_own_labels() -> None:
    objects = render(EVERYTHING)
    for part, port in (("collector", "http"), ("agent", "metrics")):
        monitor, service = of_kind(objects, "ServiceMonitor", part), of_kind(objects, "Service", part)
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert [p["name"] for p in service["spec"]["ports"]] == [port]
        assert [(e["port"], e["honorLabels"]) for e in monitor["spec"]["endpoints"]] == [(port, True)]


def test_agents_ship_to_this_release_with_its_token() -> None:
    objects = render()
    agent, service = of_kind(objects, "DaemonSet", "agent"), of_kind(objects, "Service", "collector")
    given = environment(agent)
    host = f"{service['metadata']['name']}.{NAMESPACE}.svc"
    assert given["REPLAYWATCH_AGENT_COLLECTOR_URL"] == f"http://{host}:{service['spec']['ports'][0]['port']}"
    assert given["REPLAYWATCH_AGENT_TOKEN_FILE"] == "/etc/replaywatch/auth/token"
    secret = of_kind(objects, "Secret")
    assert [v["secret"]["secretName"] for v in pod_spec(agent)["volumes"] if "secret" in v] == [
        secret["metadata"]["name"]
    ]


def test_a_node_agent_knows_that_it_speaks_for_the_node() -> None:
    agent = of_kind(render(), "DaemonSet", "agent")
    assert environment(agent)["REPLAYWATCH_AGENT_SCOPE"] == "node"
    assert pod_spec(agent)["hostPID"] is True
    mounts = {m["mountPath"]: m for c in containers(agent) for m in c["volumeMounts"]}
    assert mounts["/var/log/containers"]["readOnly"] is True


def test_a_labelled_pod_is_asked_about_and_never_held_up() -> None:
    (hook,) = of_kind(render({"admission": {"enabled": True}}), "MutatingWebhookConfiguration")["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["sideEffects"] == "None"
    assert hook["admissionReviewVersions"] == ["v1"]
    assert hook["timeoutSeconds"] <= 5
    assert hook["objectSelector"] == {"matchLabels": {LABEL: ENABLED}}
    (rule,) = hook["rules"]
    assert (rule["operations"], rule["resources"], rule["scope"]) == (["CREATE"], ["pods"], "Namespaced")
    (place,) = hook["namespaceSelector"]["matchExpressions"]
    assert (place["operator"], place["values"]) == ("NotIn", ["kube-system", NAMESPACE])


def test_the_webhook_is_off_unless_asked_for() -> None:
    assert not [o for o in render() if o["metadata"]["name"].endswith("-admission")]


def test_the_webhook_is_reached_by_the_name_that_its_certificate_has(tmp_path: Path) -> None:
    objects = render({"admission": {"enabled": True}})
    (hook,) = of_kind(objects, "MutatingWebhookConfiguration")["webhooks"]
    secret = next(o for o in objects if o.get("type") == "kubernetes.io/tls")
    assert hook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    for name, text in secret["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    host = f"{hook['clientConfig']['service']['name']}.{hook['clientConfig']['service']['namespace']}.svc"
    said = output_of(
        ["openssl", "verify", "-CAfile", "ca.crt", "-purpose", "sslserver", "-verify_hostname", host, "tls.crt"],
        cwd=tmp_path,
    )
    assert said == "tls.crt: OK\n"
    service = of_kind(objects, "Service", "admission")
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == tuple(host.split(".")[:2])
    assert [p["port"] for p in service["spec"]["ports"]] == [hook["clientConfig"]["service"]["port"]]


def test_a_pod_that_the_charts_webhook_changes_meets_the_charts_agent(tmp_path: Path) -> None:
    """The webhook started with exactly what the chart gives it, asked over TLS by the chart's certificate."""
    objects = render({"admission": {"enabled": True}, "imageRegistry": "registry.example.com/rw", "imageTag": "9"})
    secret = next(o for o in objects if o.get("type") == "kubernetes.io/tls")
    for name, text in secret["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    given = environment(of_kind(objects, "Deployment", "admission"))
    local = {"HOST": "127.0.0.1", "PORT": "0", "TLS_CERTIFICATE": tmp_path / "tls.crt", "TLS_KEY": tmp_path / "tls.key"}
    handle = start_webhook(
        webhook_settings({}, given | {f"REPLAYWATCH_ADMISSION_{name}": str(value) for name, value in local.items()})
    )
    try:
        answer = ask(tmp_path, handle.url, question(PODS["bare"]))
    finally:
        handle.stop()
    made = {"spec": {"template": patched(PODS["bare"], answer.json())}}
    agent = of_kind(objects, "DaemonSet", "agent")
    assert next(containers(made))["image"] == "registry.example.com/rw/probe:9"
    folder = {v["name"]: v["hostPath"]["path"] for v in pod_spec(made)["volumes"] if "hostPath" in v}
    ours = {v["name"]: v["hostPath"]["path"] for v in pod_spec(agent)["volumes"] if "hostPath" in v}
    assert folder["replaywatch-socket"] == ours["socket"]
    assert environment(made)["REPLAYWATCH_PROBE_SOCKET"] == environment(agent)["REPLAYWATCH_AGENT_SOCKET"]
    assert pod_spec(made)["securityContext"]["supplementalGroups"] == [pod_spec(agent)["securityContext"]["runAsGroup"]]


def test_the_webhook_makes_of_a_pod_what_the_example_says() -> None:
    """Both ways of opting in add the same; only the start differs: the example may change the command."""
    example = yaml.safe_load((DEPLOY / "kubernetes" / "watched-by-node-agent.yaml").read_text())
    additions = Additions("replaywatch/probe:0.1.0", "IfNotPresent", "/run/replaywatch", 65532)
    body = json.dumps(question(PODS["bare"])).encode()
    made = patched(PODS["bare"], json.loads(review(body, additions).body))["spec"]
    wanted = pod_spec(example)
    assert made["containers"][0]["volumeMounts"] == wanted["containers"][0]["volumeMounts"]
    assert made["initContainers"][0]["volumeMounts"] == wanted["initContainers"][0]["volumeMounts"]
    assert [set(v) for v in made["volumes"]] == [set(v) for v in wanted["volumes"]]
    assert [v["name"] for v in made["volumes"]] == [v["name"] for v in wanted["volumes"]]
    assert made["securityContext"] == wanted["securityContext"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"enabled": True, "existingSecret": "x"}, r"set admission\.caBundle"),
        ({"enabled": True}, "there is none"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused_with_a_sentence(values: Object, words: str) -> None:
    agent = {} if "existingSecret" in values else {"agent": {"mode": "none"}}
    with pytest.raises(helm_python.HelmError, match=words):
        render({"admission": values, **agent})


def test_cert_manager_is_told_where_the_certificate_goes() -> None:
    objects = render(CERT_MANAGER)
    wanted, hook = of_kind(objects, "Certificate"), of_kind(objects, "MutatingWebhookConfiguration")
    place = f"{wanted['metadata']['namespace']}/{wanted['metadata']['name']}"
    assert hook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": place}
    assert "caBundle" not in hook["webhooks"][0]["clientConfig"]
    volumes = pod_spec(of_kind(objects, "Deployment", "admission"))["volumes"]
    assert [v["secret"]["secretName"] for v in volumes] == [wanted["spec"]["secretName"]]
    assert wanted["spec"]["issuerRef"]["name"] == of_kind(objects, "Issuer")["metadata"]["name"]
    host = of_kind(objects, "Service", "admission")["metadata"]["name"] + f".{NAMESPACE}.svc"
    assert host in wanted["spec"]["dnsNames"]
    assert not [o for o in objects if o["kind"] == "Secret" and o.get("type") == "kubernetes.io/tls"]


def test_an_external_database_needs_no_volume_claim() -> None:
    collector = of_kind(render(POSTGRES), "StatefulSet", "collector")
    assert "volumeClaimTemplates" not in collector["spec"]
    assert collector["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    "alone",
    [{"replicas": 2}, {"replicas": 2, "database": {"existingSecret": "x"}}, {"bus": "nats://a:4222"}],
)
def test_several_collectors_without_a_database_and_a_bus_are_refused_with_a_sentence(alone: Object) -> None:
    with pytest.raises(helm_python.HelmError, match=r"set collector\.database\.existingSecret"):
        render({"collector": alone})


@pytest.mark.parametrize(
    "wrong",
    [
        {"agnet": {}},
        {"agent": {"mode": "sidecar"}},
        {"agent": {"port": 80}},
        {"collector": {"replicas": "many"}},
        {"collector": {"webhook": {"url": "hooks.example.com"}}},
        {"serviceMonitor": {"interval": "15"}},
    ],
)
def test_values_that_cannot_work_are_refused(wrong: Object) -> None:
    with pytest.raises(helm_python.HelmError):
        render(wrong)


def test_the_rules_are_those_of_the_repository_and_prometheus_takes_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rules = [o for o in render(EVERYTHING) if o["kind"] == "PrometheusRule"]
    files = sorted((DEPLOY.parent / "dashboards" / "rules").glob("*.rules.yml"))
    assert [r["spec"] for r in rules] == [yaml.safe_load(f.read_text()) for f in files]
    path = tmp_path_factory.mktemp("rules") / "rules.yml"
    for rule in rules:
        path.write_text(yaml.safe_dump(rule["spec"]))
        output_of([program("promtool", "prometheus"), "check", "rules", str(path)])


def test_dashboards_fit_into_their_config_maps() -> None:
    maps = [o for o in render(EVERYTHING) if o["kind"] == "ConfigMap"]
    files = {f.name: f.read_text() for f in (DEPLOY.parent / "dashboards" / "grafana").glob("*.json")}
    assert {name: text.rstrip("\n") for m in maps for name, text in m["data"].items()} == {
        name: text.rstrip("\n") for name, text in files.items()
    }
    assert all(len(yaml.safe_dump(m)) < 1 << 20 for m in maps)


def test_an_open_collector_is_said_to_be_open() -> None:
    assert "Anybody who reaches the collector" in notes({"auth": {"enabled": False}})
    assert "Anybody" not in notes({})


@pytest.mark.parametrize("name", ["watched-by-node-agent.yaml", "watched-by-sidecar.yaml"])
def test_the_examples_of_watched_pods_are_valid_and_fit_the_chart(name: str) -> None:
    thing = yaml.safe_load((DEPLOY / "kubernetes" / name).read_text())
    check([thing])
    given = environment(thing)
    assert {n for n in given if n.startswith("REPLAYWATCH")} <= KNOWN_VARIABLES
    agent = of_kind(render(), "DaemonSet", "agent")
    assert given["REPLAYWATCH_PROBE_SOCKET"] == environment(agent)["REPLAYWATCH_AGENT_SOCKET"]
    if "node" in name:
        folder = {v["name"]: v["hostPath"]["path"] for v in pod_spec(thing)["volumes"] if "hostPath" in v}
        ours = {v["name"]: v["hostPath"]["path"] for v in pod_spec(agent)["volumes"] if "hostPath" in v}
        assert folder["replaywatch-socket"] == ours["socket"]
        groups = pod_spec(thing)["securityContext"]["supplementalGroups"]
        assert groups == [pod_spec(agent)["securityContext"]["runAsGroup"]]


def load_describe() -> ModuleType:
    spec = util.spec_from_file_location("describe_chart", DEPLOY / "helm" / "describe.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["describe_chart"] = module
    spec.loader.exec_module(module)
    return module


def test_the_charts_readme_and_schema_are_fresh() -> None:
    for file, content in load_describe().describe().items():
        assert file.read_text() == content, "run: python deploy/helm/describe.py"


def test_the_limits_of_the_schema_name_values_that_exist() -> None:
    describe = load_describe()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in describe.LIMITS:
        here = values
        for part in path.split("."):
            here = here[part]
