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


IN_LAYERS = ["llgtrt-schema", "llgtrt-grammar"]
"""Crates whose modules are read from the top down: those of one folder do not need each other in a circle."""

Module = tuple[str, ...]


def modules(source: Path) -> dict[Module, Path]:
    """The modules of a crate, by their path; the root is the empty one. Tests do not count."""
    found = {}
    for path in source.rglob("*.rs"):
        module = path.relative_to(source).with_suffix("").parts
        if module[-1] in ("mod", "lib"):
            module = module[:-1]
        if "tests" not in module:
            found[module] = path
    return found


def leaves(tree: str) -> list[list[str]]:
    """The paths that a ``use`` names: ``a::{b, c::d}`` are ``a::b`` and ``a::c::d``."""
    before, brace, inside = tree.partition("{")
    if not brace:
        return [[part.strip() for part in tree.split(" as ")[0].split("::")]]
    depth, parts = 0, [""]
    for char in inside[: inside.rindex("}")]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [leaf for part in parts if part.strip() for leaf in leaves(before + part.strip())]


NO_CODE = re.compile(
    r"""//[^\n]* | b?'(?:\\.|[^\\'])' | r(\#+)".*?"\1 | r"[^"]*" | b?"(?:\\.|[^\\"])*" """,
    re.DOTALL | re.VERBOSE,
)
"""Comments, characters and texts."""


class Crate:
    """Which module of a crate names what of which other one."""

    def __init__(self, source: Path) -> None:
        self.files = modules(source)
        self.uses: dict[Module, list[list[str]]] = {}
        self.paths: dict[Module, list[list[str]]] = {}
        for module, file in self.files.items():
            text = NO_CODE.sub("", file.read_text())
            text = re.sub(r"#\[cfg\(test\)\]\s*mod \w+ \{.*?\n\}", "", text, flags=re.DOTALL)
            use = r"\buse\s+([^;]+);"
            self.uses[module] = [leaf for tree in re.findall(use, text) for leaf in leaves(tree)]
            rest = re.sub(use, "", text)
            self.paths[module] = [path.split("::") for path in re.findall(r"(?<![:\w])\w+(?:::\w+)+", rest)]

    def target(self, module: Module, path: list[str], tried: int = 0) -> Module | None:
        """The module that a path names or leads into: where it is defined, not where it is offered again."""
        head, *rest = path
        if head == "crate":
            at: list[str] = []
        elif head == "self":
            at = list(module)
        elif head == "super":
            at = list(module[:-1])
            while rest and rest[0] == "super":
                at, rest = at[:-1], rest[1:]
        elif (*module, head) in self.files:
            at, rest = list(module), path
        else:
            return None
        while rest and (*at, rest[0]) in self.files:
            at, rest = [*at, rest[0]], rest[1:]
        here = tuple(at)
        for offered in self.uses.get(here, []):
            if rest and offered[-1] == rest[0] and here != module and tried < 4:
                return self.target(here, offered, tried + 1) or here
        return here

    def needs(self) -> set[tuple[Module, Module]]:
        """Pairs of modules of one folder: the first, or one inside it, names something of the second."""
        pairs = set()
        for module in self.files:
            for path in self.uses[module] + self.paths[module]:
                target = self.target(module, path)
                if target is None:
                    continue
                common = next(
                    (at for at, (a, b) in enumerate(zip(module, target, strict=False)) if a != b),
                    min(len(module), len(target)),
                )
                if len(module) > common < len(target):
                    pairs.add((module[: common + 1], target[: common + 1]))
        return pairs


def circle(pairs: set[tuple[Module, Module]]) -> set[Module]:
    """The modules that need each other in a circle, and those between two circles."""
    left = set(pairs)
    while True:
        starts, ends = {a for a, _ in left}, {b for _, b in left}
        kept = {(a, b) for a, b in left if a in ends and b in starts}
        if kept == left:
            return starts
        left = kept


@pytest.mark.parametrize("crate", IN_LAYERS)
def test_modules_do_not_need_each_other_in_a_circle(crate: str) -> None:
    source = ROOT / "rust" / crate / "src"
    assert circle(Crate(source).needs()) == set()
    # What stands in the root would be above all modules and below them.
    root = NO_CODE.sub("", (source / "lib.rs").read_text())
    assert not re.search(r"\b(fn|struct|enum|trait|impl|const|static|type) ", root)


@pytest.mark.parametrize("crate", IN_LAYERS)
def test_what_modules_need_is_found(crate: str) -> None:
    needs = Crate(ROOT / "rust" / crate / "src").needs()
    known = {
        "llgtrt-schema": {("write", "shape"), ("budget", "limits"), ("read", "source")},
        "llgtrt-grammar": {("compiler", "cache"), ("slot", "compiled"), ("admission", "refusal")},
    }
    assert {((a,), (b,)) for a, b in known[crate]} <= needs
    assert circle({(("a",), ("b",)), (("b",), ("c",)), (("c",), ("a",)), (("d",), ("a",))}) == {
        ("a",),
        ("b",),
        ("c",),
    }
