"""Which crate may depend on which, and where ``unsafe`` and PyO3 may stand, read from Cargo and sources."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAY_DEPEND = {
    "llgtrt-core": set(),
    "llgtrt-text": {"llgtrt-core"},
    "llgtrt-schema": set(),
    "llgtrt-grammar": {"llgtrt-core", "llgtrt-schema"},
    "llgtrt-runtime": {"llgtrt-core", "llgtrt-text", "llgtrt-grammar"},
    "llgtrt-engine-sim": {"llgtrt-core"},
    "llgtrt-stepped": {"llgtrt-core"},
    "llgtrt-engine-llamacpp": {"llgtrt-core", "llgtrt-stepped"},
    "llgtrt-engine-trtllm": {"llgtrt-core"},
    "llgtrt-conformance": {"llgtrt-core"},
    "llgtrt-interleavings": {"llgtrt-core", "llgtrt-text"},
    "llgtrt-py": {
        "llgtrt-core",
        "llgtrt-text",
        "llgtrt-schema",
        "llgtrt-grammar",
        "llgtrt-runtime",
        "llgtrt-stepped",
        "llgtrt-engine-sim",
        "llgtrt-engine-llamacpp",
        "llgtrt-engine-trtllm",
    },
}
"""Dependencies among our crates; those of tests and benches do not count."""

MAY_BE_UNSAFE = {"llgtrt-engine-llamacpp", "llgtrt-engine-trtllm", "llgtrt-py"}


@cache
def dependencies() -> dict[str, set[str]]:
    """Each crate of the workspace with what it depends on when built."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {
        package["name"]: {
            dependency["name"] for dependency in package["dependencies"] if dependency["kind"] != "dev"
        }
        for package in json.loads(output)["packages"]
    }


def test_every_crate_is_known() -> None:
    assert set(dependencies()) == set(MAY_DEPEND)


@pytest.mark.parametrize("crate", MAY_DEPEND)
def test_a_crate_depends_only_on_lower_ones(crate: str) -> None:
    ours = {name for name in dependencies()[crate] if name.startswith("llgtrt-")}
    assert ours <= MAY_DEPEND[crate]


def test_only_the_extension_module_knows_python() -> None:
    assert {crate for crate, needs in dependencies().items() if "pyo3" in needs} == {"llgtrt-py"}


def test_unsafe_stands_only_at_the_borders() -> None:
    unsafe = re.compile(r"\bunsafe\s*(\{|fn\b|impl\b|extern\b)")
    found = {
        path.relative_to(ROOT / "rust").parts[0]
        for path in (ROOT / "rust").glob("*/src/**/*.rs")
        if unsafe.search(path.read_text())
    }
    assert found <= MAY_BE_UNSAFE
    assert found, "llama.cpp cannot be called without it: the search is wrong if it finds nothing"
