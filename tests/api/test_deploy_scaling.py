"""The manifests of deploy/ for gateways and for Dynamo: what they name exists, here or in each other."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from llgtrt.cli.dynamo import command
from llgtrt.config import FLAGS, Arguments, ServerConfig, load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
GATEWAY = DEPLOY / "gateway"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def apply_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    """A JSON patch (RFC 6902) of ``add`` alone."""
    document = copy.deepcopy(document)
    for operation in operations:
        assert set(operation) == {"op", "path", "value"}
        assert operation["op"] == "add"
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        at = document
        for part in parts[:-1]:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            assert parts[-1] == "-"
            at.append(operation["value"])
        else:
            at[parts[-1]] = operation["value"]
    return document


@pytest.fixture
def patched() -> dict[str, Any]:
    """The manifests of the gateway's kustomization, patched, by kind."""
    kustomization = read(GATEWAY / "kustomization.yaml")
    base, *own = kustomization["resources"]
    names = read(GATEWAY / base / "kustomization.yaml")["resources"]
    paths = [*(GATEWAY / base / name for name in names), *(GATEWAY / name for name in own)]
    found = {document["kind"]: document for document in map(read, paths)}
    patches = {patch["path"] for patch in kustomization["patches"]}
    assert {*own, *patches, "kustomization.yaml"} == {path.name for path in GATEWAY.iterdir()}
    for patch in kustomization["patches"]:
        target = found[patch["target"]["kind"]]
        assert target["metadata"]["name"] == patch["target"]["name"]
        found[target["kind"]] = apply_patch(target, read(GATEWAY / patch["path"]))
    return found


def values_of(arguments: list[str], known: Container[str]) -> Iterator[tuple[str, str]]:
    """Flags and their values; fails on an unknown flag."""
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("-"):
            assert argument in known, argument
            yield argument, next(rest)


def test_the_pool_takes_the_pods_and_the_route_takes_the_pool(patched: dict[str, Any]) -> None:
    pool, route = patched["InferencePool"], patched["HTTPRoute"]
    template = patched["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert patched["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert pool["spec"]["targetPorts"] == [{"number": ports["http"]}]
    group = pool["apiVersion"].split("/")[0]
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [{"group": group, "kind": pool["kind"], "name": pool["metadata"]["name"]}]
    assert pool["spec"]["endpointPickerRef"]["failureMode"] in ("FailOpen", "FailClose")
    # What an endpoint picker looks for is published unless somebody turns it off.
    assert (
        labels["inference.networking.k8s.io/engine-type"]
        in load_settings(Arguments(backend="sim")).config.metrics.compat
    )


def test_the_pods_publish_kv_events_where_they_may_be_read(patched: dict[str, Any]) -> None:
    (container,) = patched["Deployment"]["spec"]["template"]["spec"]["containers"]
    known = {name for flag in FLAGS.values() for name in flag.names}
    flags = list(values_of(container["args"], known))
    values = dict(flags)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert values["--kv-events"] == f"zmq://*:{ports['kv-events']}"
    opened = {port["port"] for port in patched["NetworkPolicy"]["spec"]["ingress"][0]["ports"]}
    assert opened == set(ports)
    assert {"POD_IP"} <= {variable["name"] for variable in container["env"]}
    # As Kubernetes hands it to the container.
    settings = load_settings(
        Arguments(
            backend="sim",
            kv_events=values["--kv-events"],
            set=tuple(value.replace("$(POD_IP)", "10.0.0.7") for name, value in flags if name == "--set"),
        )
    )
    # As llm-d's picker calls the endpoint: by its address and the pool's port.
    address = f"10.0.0.7:{ports['http']}"
    assert settings.config.kv_events.topic == f"kv@{address}@{values['--served-model-name']}"
    assert settings.config.kv_events.endpoint == f"zmq://*:{ports['kv-events']}"


def test_dynamos_graph_starts_workers_of_ours() -> None:
    graph = read(DEPLOY / "dynamo" / "dynamographdeployment.yaml")
    assert (graph["apiVersion"], graph["kind"]) == ("nvidia.com/v1beta1", "DynamoGraphDeployment")
    frontend, worker = graph["spec"]["components"]
    assert (frontend["type"], worker["type"]) == ("frontend", "worker")
    pod = worker["podTemplate"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "main"
    assert container["command"] == ["llgtrt", command().name]
    known = {name: parameter for parameter in command().params for name in parameter.opts}
    flags = dict(values_of(container["args"], known))
    choice = known["--discovery-backend"].type
    assert isinstance(choice, click.Choice)
    assert flags["--discovery-backend"] in choice.choices
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert Path(container["args"][0]).parent.as_posix() == mounts["models"]
    grace = known["--grace-period"].get_default(click.Context(command()))
    assert isinstance(grace, float)
    assert pod["terminationGracePeriodSeconds"] > grace + ServerConfig().drain_timeout_s
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert json.dumps(container["resources"]["requests"]) == json.dumps(container["resources"]["limits"])


def test_the_images_can_be_built() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG EXTRA=$", dockerfile, re.MULTILINE)
    texts = [path.read_text() for path in (*GATEWAY.iterdir(), *(DEPLOY / "dynamo").iterdir())]
    extras = {extra for text in texts for extra in re.findall(r"--build-arg EXTRA=([\w-]+)", text)}
    assert extras == {"kv-events", "dynamo"}
    for extra in extras:
        assert (DEPLOY.parent / "requirements" / f"{extra}.txt").is_file(), extra
        assert f"\n{extra} = [\n" in (DEPLOY.parent / "pyproject.toml").read_text()


def test_the_schemas_of_kubernetes_are_met_after_the_patches(patched: dict[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for kind in ("Deployment", "NetworkPolicy"):
        validator.validate(patched[kind], "1.34", strict=True)


CUSTOM = [
    GATEWAY / "inferencepool.yaml",
    GATEWAY / "httproute.yaml",
    DEPLOY / "dynamo" / "dynamographdeployment.yaml",
    DEPLOY.parent / "docker" / "examples" / "leaderworkerset.yaml",
]


def custom_resources(folder: Path) -> dict[tuple[str, str], Any]:
    """The schemas of the CustomResourceDefinitions in a folder, by apiVersion and kind."""
    schemas = {}
    for path in folder.rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "CustomResourceDefinition":
                spec = document["spec"]
                for version in spec["versions"]:
                    name = f"{spec['group']}/{version['name']}"
                    schemas[name, spec["names"]["kind"]] = closed(version["schema"]["openAPIV3Schema"])
    return schemas


def closed(schema: Any) -> Any:
    """A schema of OpenAPI, as strict as a server that refuses unknown fields."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(value) for name, value in schema.items()}
    open_ended = made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    if isinstance(made.get("properties"), dict) and made.get("type") == "object" and not open_ended:
        made["additionalProperties"] = False
    return made


@pytest.mark.parametrize("path", CUSTOM, ids=lambda path: path.stem)
def test_the_schemas_of_custom_resources_are_met(path: Path) -> None:
    folder = os.environ.get("LLGTRT_TEST_CRDS")
    if not folder:
        pytest.skip("LLGTRT_TEST_CRDS names no folder of CustomResourceDefinitions")
    schemas = custom_resources(Path(folder))
    found = 0
    for document in yaml.safe_load_all(path.read_text()):
        if "." not in document["apiVersion"]:
            continue  # Kubernetes' own
        schema = schemas.get((document["apiVersion"], document["kind"]))
        if schema is None:
            pytest.skip(f"{folder} does not define {document['kind']}")
        found += 1
        plain = {**document, "metadata": {}}
        wrong = [error.message for error in jsonschema.Draft4Validator(schema).iter_errors(plain)]
        assert not wrong
        # The judge judges.
        broken = {**plain, "spec": {**plain["spec"], "noSuchField": 1}}
        assert not jsonschema.Draft4Validator(schema).is_valid(broken)
    assert found == 1
