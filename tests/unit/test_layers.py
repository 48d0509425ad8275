"""Who may import whom, read from the import statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import llgtrt

PACKAGE = Path(llgtrt.__path__[0])

MAY_IMPORT = {
    "logs": set(),
    "config": {"logs"},
    "threads": {"config"},
    # Imports the native module for the two below.
    "load_native": set(),
    "engine": {"load_native"},
    # Knows of nothing but JSON.
    "patient_json": {"load_native"},
    "chat": {"config", "tools", "patient_json"},
    "tools": {"config", "patient_json"},
    "hooks": {"config", "engine", "chat"},
    "serving": {"engine", "chat", "tools", "hooks", "config", "logs", "patient_json", "threads"},
    "api": {"serving", "engine", "config", "logs", "patient_json"},
    # For users of other engines: no configuration, no server.
    "schema": {"engine"},
    # Needs an extra.
    "kv_events": {"engine", "config"},
    # Measures any server from outside.
    "bench": set(),
    "cli": {"app", "bench", "dynamo", "serving", "hooks", "config", "logs"},
    # A composition root of its own: nothing of HTTP.
    "dynamo": {"serving", "chat", "tools", "engine", "config", "logs", "threads"},
    "truss": {"api", "serving", "hooks", "engine", "config", "patient_json"},
    "app": {"kv_events", "truss", "api", "serving", "hooks", "chat", "tools", "engine", "config", "logs"}
    | {"threads"},
}
"""Layers of ``llgtrt`` and the layers below them that they use."""

WEB_FRAMEWORK = {"fastapi", "starlette", "uvicorn"}
WITHOUT_WEB_FRAMEWORK = ("logs", "threads", "config", "engine", "chat", "tools", "hooks", "serving", "dynamo")


def modules(layer: str) -> list[Path]:
    """The source files of a layer; none if it does not exist yet."""
    single = PACKAGE / f"{layer}.py"
    return [single] if single.is_file() else sorted((PACKAGE / layer).rglob("*.py"))


def imported_names(path: Path) -> Iterator[str]:
    """Absolute dotted names of all that a module imports, in functions and under TYPE_CHECKING as well."""
    package = ["llgtrt", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imported_layers(path: Path) -> set[str]:
    """The layers of ``llgtrt`` that a module imports from."""
    names = (name.split(".") for name in imported_names(path))
    return {name[1] for name in names if name[0] == "llgtrt" and len(name) > 1}


def test_every_part_of_the_package_is_a_known_layer() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert parts - {"__pycache__", "__init__", "__main__"} <= set(MAY_IMPORT)


OF_THE_CORE = {"engine", "patient_json"}
"""What gives the core's objects and functions to all others."""


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_from_below(layer: str) -> None:
    allowed = MAY_IMPORT[layer] | {layer} | ({"_native"} if layer in OF_THE_CORE else set())
    for path in modules(layer):
        assert imported_layers(path) & (set(MAY_IMPORT) | {"_native"}) <= allowed, path


@pytest.mark.parametrize("layer", WITHOUT_WEB_FRAMEWORK)
def test_no_web_framework_below_the_api(layer: str) -> None:
    for path in modules(layer):
        assert not {name.split(".")[0] for name in imported_names(path)} & WEB_FRAMEWORK, path


def test_relative_imports_are_resolved(tmp_path: Path) -> None:
    """The reader itself: a test of imports that sees none would always pass."""
    module = PACKAGE / "serving" / "prompt.py"
    assert {"engine", "chat"} <= imported_layers(module)
    assert "llgtrt.config.section" in set(imported_names(PACKAGE / "config" / "server.py"))
