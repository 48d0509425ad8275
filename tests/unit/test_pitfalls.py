"""Every pitfall of docs/pitfalls.md has a test of its number, and every such test a pitfall."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_NAME = re.compile(r"(?:def test_|fn )p(\d+)_")


def numbers_of_tests() -> set[int]:
    # The stock clients of `make clients` lie below tests too.
    tests = (path for path in (ROOT / "tests").rglob("*.py") if ".venv" not in path.parts)
    sources = [*tests, *(ROOT / "rust").rglob("*.rs")]
    return {int(number) for path in sources for number in TEST_NAME.findall(path.read_text("utf-8"))}


def test_each_has_tests() -> None:
    page = (ROOT / "docs" / "pitfalls.md").read_text("utf-8")
    described = [int(number) for number in re.findall(r"^\| P(\d+) \|", page, re.MULTILINE)]
    assert described == sorted(set(described))
    assert set(described) == numbers_of_tests()
