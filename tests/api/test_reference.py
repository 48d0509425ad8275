"""docs/api.md is generated; this fails when the routes or the models have changed since."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import httpx
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "api_reference.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(http: httpx.Client, script: ModuleType) -> None:
    page = script.page(http.get("/openapi.json").json(), json.loads(script.OPENAI.read_text()))
    assert script.PAGE.read_text(encoding="utf-8") == page, "run: python scripts/api_reference.py"


def test_what_is_ours_is_marked(script: ModuleType) -> None:
    section = script.PAGE.read_text(encoding="utf-8").split("\n## ChatRequest\n")[1].split("\n## ")[0]
    rows = {line.split("|")[1].strip(): line for line in section.splitlines() if line.startswith("| `")}
    assert "**ours**" in rows["`guided_json`"]
    assert "**ours**" not in rows["`parallel_tool_calls`"]
    assert "**required**" in rows["`messages`"]
