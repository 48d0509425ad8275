"""The files of deploy/: every metric, label, flag, port and path in them exists.

Some are judged by tools that are used if they are there: ``promtool`` (Debian's package ``prometheus``, or
``LLGTRT_TEST_PROMTOOL``), ``kubernetes-validate`` (from PyPI), ``kubectl`` and ``systemd-analyze``.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from llgtrt.config import FLAGS, Config, ServerConfig
from llgtrt.config.files import read_config_file
from support.api import CHAT, COMPLETIONS, chat, ok
from support.server import ServerProcess

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
PORT = 3000
ADDED_BY_PROMETHEUS = {"instance", "job", "le"}
DRAIN_S = ServerConfig().drain_timeout_s

_SELECTOR = re.compile(r"\b((?:llgtrt_|process_|vllm:|nv_)[a-z0-9_]*)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def tool(name: str, variable: str = "") -> str:
    """The path of a program; skips the test if it is not there."""
    path = os.environ.get(variable) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Metric]:
    """The families of a server of two models that has done a bit of everything, by their samples' names."""
    file = tmp_path_factory.mktemp("deploy") / "two.json5"
    file.write_text(json.dumps({"models": [{"name": name, "backend": "sim"} for name in ("red", "blue")]}))
    json_object = chat(model="red", response_format={"type": "json_object"}, max_tokens=40)
    with ServerProcess("-C", str(file)) as server, httpx.Client(base_url=server.base_url, timeout=60) as http:
        ok(http.post(CHAT, json=json_object))
        http.post(COMPLETIONS, json={"model": "red", "prompt": "a", "guided_grammar": "start ="})
        text = http.get("/metrics").text
    return {
        name: family
        for family in text_string_to_metric_families(text)
        for name in (family.name, *(sample.name for sample in family.samples))
    }


def dashboard_expressions() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "llgtrt.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def alert_expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def manifests() -> dict[str, dict[str, Any]]:
    """The manifests that are applied, by kind."""
    names = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert {*names, "kustomization.yaml"} == {path.name for path in KUBERNETES.iterdir()}
    found = [yaml.safe_load((KUBERNETES / name).read_text()) for name in names]
    return {one["kind"]: one for one in found}


def flags_of(arguments: list[str]) -> dict[str, str]:
    """The values of the flags of a command line; fails if there is no such flag."""
    known = {name for flag in FLAGS.values() for name in flag.names}
    values = {}
    for index, argument in enumerate(arguments):
        if argument.startswith("-"):
            assert argument in known, argument
            values[argument] = arguments[index + 1]
    return values


# --- metrics ------------------------------------------------------------------------------------


def autoscaler_expressions() -> list[str]:
    spec = manifests()["HorizontalPodAutoscaler"]["spec"]
    return [one["pods"]["metric"]["name"] for one in spec["metrics"]]


@pytest.mark.parametrize("source", ["dashboard", "alerts", "autoscaler"])
def test_metrics_and_labels_exist(metrics: dict[str, Metric], source: str) -> None:
    readers: dict[str, Callable[[], list[str]]] = {
        "dashboard": dashboard_expressions,
        "alerts": alert_expressions,
        "autoscaler": autoscaler_expressions,
    }
    expressions = readers[source]()
    assert expressions
    for expression in expressions:
        labels = {label for name in _BY.findall(expression) for label in re.findall(r"\w+", name)}
        known = set(ADDED_BY_PROMETHEUS)
        for name, selector in _SELECTOR.findall(_BY.sub("", expression)):
            assert name in metrics, name
            own = {label for sample in metrics[name].samples for label in sample.labels}
            used = set(_LABEL.findall(selector))
            assert used <= own | ADDED_BY_PROMETHEUS, (name, used)
            known |= own
            if name.endswith("_bucket"):
                assert metrics[name].type == "histogram"
            elif "rate(" + name in expression:
                assert metrics[name].type in ("counter", "histogram"), name
        assert labels <= known, expression


def test_the_expressions_are_promql(tmp_path: Path) -> None:
    promtool = tool("promtool", "LLGTRT_TEST_PROMTOOL")
    rules = [
        {
            "record": f"panel:{number}",
            "expr": expression.replace("$__rate_interval", "5m").replace("$", ""),
        }
        for number, expression in enumerate(dashboard_expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run(promtool, "check", "rules", str(file), str(DEPLOY / "prometheus" / "alerts.yml"))


def test_the_alerts_fire_when_they_should() -> None:
    promtool = tool("promtool", "LLGTRT_TEST_PROMTOOL")
    run(promtool, "test", "rules", str(DEPLOY / "prometheus" / "alerts_test.yml"))
    configuration = DEPLOY / "prometheus" / "prometheus.yml"
    run(promtool, "check", "config", "--syntax-only", str(configuration))


def test_every_alert_has_a_test() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
    assert {one["alertname"] for test in tests for one in test["alert_rule_test"]} == names


def test_the_dashboard() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "llgtrt.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for at in places for x in _span(at["x"], at["w"]) for y in _span(at["y"], at["h"])]
    assert len(set(cells)) == len(cells), "panels lie on each other"
    assert all(0 <= x < 24 for x, _ in cells)
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - {"__rate_interval", "__all"}
    assert used == variables


def _span(start: int, length: int) -> range:
    return range(start, start + length)


# --- ways to run --------------------------------------------------------------------------------


def test_probes_and_scrapes_are_routes(server: ServerProcess) -> None:
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    paths = {container[probe]["httpGet"]["path"] for probe in probes}
    template = manifests()["Deployment"]["spec"]["template"]
    paths.add(template["metadata"]["annotations"]["prometheus.io/path"])
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    paths |= set(re.findall(r"127\.0\.0\.1:\d+(/[\w/]+)", str(compose["services"]["llgtrt"]["healthcheck"])))
    assert len(paths) == 3
    for path in paths:
        assert server.get(path).status_code == 200, path


def test_kubernetes(tmp_path: Path) -> None:
    found = manifests()
    spec = found["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selectors = [
        spec["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert selectors == [labels] * 4
    assert (
        found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
        == found["Deployment"]["metadata"]["name"]
    )
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    flags = flags_of(container["args"])
    (port,) = container["ports"]
    assert flags["--port"] == str(port["containerPort"]) == str(PORT)
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(PORT)
    references = [
        container["startupProbe"]["httpGet"]["port"],
        container["readinessProbe"]["httpGet"]["port"],
        container["livenessProbe"]["httpGet"]["port"],
        found["Service"]["spec"]["ports"][0]["targetPort"],
        found["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"],
    ]
    assert references == [port["name"]] * 5
    assert found["Service"]["metadata"]["name"] != "llgtrt"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    assert Path(container["args"][0]).parent.as_posix() in mounts
    ((name, text),) = found["ConfigMap"]["data"].items()
    assert flags["--config"] == f"/etc/llgtrt/{name}"
    assert "/etc/llgtrt" in mounts
    file = tmp_path / name
    file.write_text(text)
    config = Config.model_validate(read_config_file(file))
    assert pod["terminationGracePeriodSeconds"] > config.server.drain_timeout_s
    assert config.server.exit_after_stall_s is not None, "the liveness probe leaves a hang to it"
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_kubernetes_manifests_fit_the_api() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for manifest in manifests().values():
        validator.validate(manifest, "1.34", strict=True)


def test_kustomize_takes_them() -> None:
    kubectl = tool("kubectl")
    rendered = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=False
    )
    assert rendered.returncode == 0, rendered.stderr
    assert {one["kind"] for one in yaml.safe_load_all(rendered.stdout)} == set(manifests())


def test_compose() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    server = services["llgtrt"]
    assert flags_of(server["command"])["--port"] == str(PORT)
    assert all(port.endswith(f":{PORT}") for port in server["ports"])
    assert f":{PORT}/" in server["healthcheck"]["test"][-1]
    assert int(server["stop_grace_period"].removesuffix("s")) > DRAIN_S
    for mount in services["prometheus"]["volumes"] + services["grafana"]["volumes"]:
        assert (DEPLOY / mount.split(":")[0]).exists(), mount
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"llgtrt:{PORT}"]}]
    # The alerts and the compose file name the same job, file and address.
    assert f'up{{job="{job["job_name"]}"}}' in alert_expressions()[0]
    targets = {mount.split(":")[1] for mount in services["prometheus"]["volumes"]}
    assert set(scrape["rule_files"]) <= targets
    source = DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    assert yaml.safe_load(source.read_text())["datasources"][0]["url"] == "http://prometheus:9090"
    provider = DEPLOY / "grafana" / "provisioning" / "dashboards" / "llgtrt.yml"
    folder = yaml.safe_load(provider.read_text())["providers"][0]["options"]["path"]
    assert any(mount.split(":")[1].startswith(folder) for mount in services["grafana"]["volumes"])


def unit() -> dict[str, str]:
    """The unit's service section."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / "llgtrt.service")
    return dict(parser["Service"].items())


def test_the_unit() -> None:
    service = unit()
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/llgtrt")
    assert arguments[0] == "serve"
    assert flags_of(arguments)["--port"] == str(PORT)
    assert float(service["TimeoutStopSec"]) > DRAIN_S
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    for code in service["RestartPreventExitStatus"].split():
        assert f"\n| {code} | " in page, "an exit code that the page does not have"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    program = shutil.which("true")
    assert program is not None
    file = tmp_path / "llgtrt.service"
    text = (DEPLOY / "systemd" / "llgtrt.service").read_text()
    file.write_text(text.replace("/opt/llgtrt/bin/llgtrt", program))
    run(analyze, "verify", str(file))


def test_the_image() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert f"\nEXPOSE {PORT}\n" in text
    assert '\nENTRYPOINT ["llgtrt", "serve"]\n' in text
    for file in re.findall(r"requirements/\w+\.txt", text):
        assert (DEPLOY.parent / file).is_file(), file
    # Both images stand on one Rust.
    other = (DEPLOY.parent / "docker" / "Dockerfile").read_text()
    (rust,) = re.findall(r"^ARG RUST_IMAGE=(.*)$", text, re.MULTILINE)
    assert f"ARG RUST_IMAGE={rust}\n" in other
