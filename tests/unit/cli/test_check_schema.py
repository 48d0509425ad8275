"""``llgtrt check-schema``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from llgtrt.cli.command import run

UNIQUE = '{"type": "array", "items": {"type": "number"}, "uniqueItems": true}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Good and bad schemas of all forms."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "plain.json").write_text('{"type": "string"}')
    (tmp_path / "not.json").write_text('{"type": "integer", "not": {"const": 3}}')
    (inner / "unique.json5").write_text("// numbers\n" + UNIQUE[:-1] + ",}")
    (inner / "lines.jsonl").write_text(
        '{"type": "null"}\n\n{"name": "x", "schema": {"properties": {"a": {"type": "no"}}}}\n'
    )
    (inner / "broken.json").write_text("{")
    (inner / "notes.txt").write_text("no schema")
    return tmp_path


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", "--residual", "refuse", str(folder)]) == 1
    out = capsys.readouterr().out
    assert f"ok       {folder}/plain.json\n" in out
    assert f"ok       {folder}/not.json  rules: not, digits\n" in out
    assert f"ok       {folder}/inner/lines.jsonl:1\n" in out
    assert f"refused  {folder}/inner/lines.jsonl:3\n         schema.properties.a.type: " in out
    assert f"refused  {folder}/inner/unique.json5\n         uniqueItems: `uniqueItems`" in out
    assert "hint: leave `uniqueItems` out" in out
    assert f"refused  {folder}/inner/broken.json\n         (root): is not JSON" in out
    assert "notes.txt" not in out
    assert "6 schemas" in out
    assert out.index("plain.json") < out.index("6 schemas")
    rows = {
        " ".join(line.strip("│ ").split("│")[0].split()): line.strip("│ ").split("│")[-1].strip()
        for line in out.splitlines()
        if line.startswith("│")
    }
    assert rows["ok, unchanged"] == "2"
    assert rows["ok, rewritten"] == "1"
    assert rows["refused"] == "3"
    assert rows["refused for uniqueItems"] == "1"


def test_quiet_shows_what_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", "-q", "-j", "1", "--residual", "refuse", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("refused  ") for line in lines) == 3
    assert not any(line.startswith("ok ") for line in lines)


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", "--json", "--residual", "refuse", str(folder)]) == 1
    out = document(capsys)
    assert (out["ok"], out["checked"], out["refused"]) == (False, 6, 3)
    by_name = {Path(result["file"]).name: result for result in out["results"]}
    rules = by_name["not.json"]["rules"]
    assert rules[0] == {"name": "not", "count": 1, "paths": [""]}
    assert [rule["name"] for rule in rules] == ["not", "digits"]
    assert by_name["unique.json5"]["errors"][0]["keyword"] == "uniqueItems"
    assert by_name["lines.jsonl:3"]["errors"][0]["path"] == "schema.properties.a.type"
    assert [result["file"] for result in out["results"]] == sorted(
        (result["file"] for result in out["results"]), key=lambda name: Path(name.split(":")[0])
    )


def test_one_good_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", str(folder / "plain.json")]) == 0
    assert capsys.readouterr().out == f"ok       {folder}/plain.json\n"


def test_what_is_verified_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", str(folder / "inner/unique.json5")]) == 0
    assert capsys.readouterr().out.endswith("  verified: uniqueItems at (root)\n")


def test_the_stages_of_a_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", "--explain", str(folder / "not.json")]) == 0
    out = capsys.readouterr().out
    titles = [line for line in out.splitlines() if line.startswith("#") and not line.startswith("#0")]
    assert titles[0] == f"# {folder}/not.json"
    assert [title for title in titles if title.startswith("## ")] == [
        "## Formula",
        "## Normal form",
        "## Written",
        "## Grammar",
        "## Rules",
    ]
    assert "- not at " in out
    assert run(["check-schema", "--explain", str(folder / "inner")]) == 1
    out = capsys.readouterr().out
    assert "refused: properties.a.type: " in out
    assert f"# {folder}/inner/broken.json\n\nis not JSON" in out


@pytest.mark.parametrize(
    ("text", "names", "code"),
    [
        ('{"type": "string"}', ["<stdin>"], 0),
        ('{\n"type":\n"string"}', ["<stdin>"], 0),
        ('{"type": "string"}\n{"type": "no"}\n', ["<stdin>:1", "<stdin>:2"], 1),
        ("{\n[", ["<stdin>"], 1),
        ("", ["<stdin>"], 1),
        ("\n\n", ["<stdin>"], 1),
        ("[" * 100_000, ["<stdin>"], 1),
        ('{"const": "\\ud800"}', ["<stdin>"], 1),
        ('{"const": NaN}', ["<stdin>"], 1),
    ],
)
def test_standard_input(
    text: str,
    names: list[str],
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["check-schema", "--json", "-"]) == code
    assert [result["file"] for result in document(capsys)["results"]] == names


def test_instances(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instances = folder / "instances"
    instances.write_text("[4, 3]")
    assert run(["check-schema", str(folder / "not.json"), "--instances", str(instances)]) == 1
    assert "instance 1 rejected at 1: " in capsys.readouterr().out
    instances.write_text("[4]")
    assert run(["check-schema", str(folder / "not.json"), "--instances", str(instances)]) == 0
    instances.write_text("{}")
    assert run(["check-schema", str(folder / "not.json"), "--instances", str(instances)]) == 1
    assert "not a JSON array" in capsys.readouterr().err


def test_the_limits_of_a_configuration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = folder / "strict.config"
    config.write_text("{llguidance: {max_source_bytes: 10}}")
    assert run(["check-schema", "-C", str(config), str(folder / "plain.json")]) == 1
    assert "the limit is 10" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["missing.json"], ["--residual", "maybe", "-"], ["--unknown", "-"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("llgtrt: error: ")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", "--help"]) == 0
    assert "Usage: llgtrt check-schema [OPTIONS] FILE..." in capsys.readouterr().out
