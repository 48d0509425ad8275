"""Which format a template asks for."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import ConfigError
from llgtrt.tools import ToolFormat, find_format, find_reasoning, registry

PUBLISHED = Path(__file__).parents[2] / "data" / "chat_templates"
TEMPLATES = {
    "lfm2": "{{ '<|tool_list_start|>[' }}<|tool_call_start|>",
    "nemotron": '{{ \'<|start_header_id|>\' }}<TOOLCALL>[{"name": ..., "parameters": ...}]</TOOLCALL>',
    "seed-oss": "{{ '<seed:tool_call>' }}<function=name>",
    "harmony": "{{ '<|start|>assistant<|channel|>commentary to=functions.' }}<|constrain|>json<|message|>",
    "qwen3-coder": "{{ '<tool_call>' }}{{ '<function=' + tool_call.name + '>' }}<tools>",
    "glm4": "{{ '<tool_call>' + name }}<arg_key>{{ k }}</arg_key>",
    "minimax-m2": "{{ '<minimax:tool_call>' }}<invoke name=",
    "minimax-m3": "{% set mark = ']<]minimax[>[' %}{{ mark + '<tool_call>' }}{{ mark + '<invoke name=' }}",
    "minicpm5": "{{ '<function name=' ~ call.name }}{{ '<param name=' ~ param }}",
    "pythonic": "in the format of [func_name1(params_name1=params_value1, ...), func_name2(params)]",
    "mistral": "{{ '[TOOL_CALLS][' }}{{ '[AVAILABLE_TOOLS]' }}",
    "mistral-args": "{{ '[TOOL_CALLS]' + name + '[ARGS]' }}",
    "deepseek-v3": "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' }}{{ '```json' }}",
    "deepseek-v3.1": "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' }}",
    "kimi-k2": "<|tool_calls_section_begin|>{% for tool_call in m.tool_calls %}<|tool_call_begin|>",
    "granite3": "{{ '<|tool_call|>' }}<|start_of_role|>",
    "hermes": '{{- \'<tool_call>\\n{"name": "\' }}{{ tool_call.name }}',
    "llama3": "{{ '<|start_header_id|>assistant' }}{{ '\"parameters\": ' }}",
}
OWN = ToolFormat("own", lambda template: "OWN" in template, head="@{name} ", tail="!", trigger="@")


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_template_shows_the_format(name: str) -> None:
    assert find_format(TEMPLATES[name]).name == name


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("deepseek_v3", "deepseek-v3"),
        ("deepseek_v31", "deepseek-v3.1"),
        ("glm45", "glm4"),
        ("granite3", "granite3"),
        ("harmony", "harmony"),
        ("kimi_k2", "kimi-k2"),
        ("llama31", "llama3"),
        ("minimax_m2", "minimax-m2"),
        ("mistral_v3", "mistral"),
        ("qwen25", "hermes"),
        ("qwen3", "hermes"),
        ("qwen3_coder", "qwen3-coder"),
        ("seed_oss", "seed-oss"),
    ],
)
def test_whole_templates_show_it_too(template: str, name: str) -> None:
    assert find_format((PUBLISHED / f"{template}.jinja").read_text(encoding="utf-8")).name == name


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("glm45", "think"),
        ("harmony", "harmony"),
        ("kimi_k2", "think"),
        ("minimax_m2", "think"),
        ("qwen3", "think"),
        ("seed_oss", "seed"),
        ("llama31", None),
        ("qwen25", None),
    ],
)
def test_whole_templates_show_their_tags_for_thinking(template: str, name: str | None) -> None:
    found = find_reasoning((PUBLISHED / f"{template}.jinja").read_text(encoding="utf-8"))
    assert (found and found.name) == name


def test_the_thinking_of_minimax_m3_has_tags_of_its_own() -> None:
    found = find_reasoning("{{ '<mm:think>' }}{{ '</mm:think>' }}")
    assert found is not None
    assert found.name == "minimax-m3"


def test_templates_without_tools_get_the_fallback() -> None:
    assert find_format("{{ messages }}").name == "hermes"


def test_the_operator_has_the_last_word() -> None:
    assert find_format(TEMPLATES["hermes"], "llama3").name == "llama3"
    with pytest.raises(ConfigError, match=r"no format 'x'; known are .*hermes"):
        find_format("", "x")


def entry(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "llgtrt.tool_parsers"
        return [EntryPoint("own", value, group)]

    monkeypatch.setattr(registry, "entry_points", entry_points)


def test_formats_of_other_packages_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    entry(monkeypatch, f"{__name__}:OWN")
    assert find_format("OWN " + TEMPLATES["hermes"]) is OWN
    assert find_format("", "own") is OWN
    assert find_format(TEMPLATES["hermes"]).name == "hermes"


@pytest.mark.parametrize("value", ["no_such_module:OWN", f"{__name__}:TEMPLATES"])
def test_an_entry_point_that_is_no_format_ends_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry(monkeypatch, value)
    with pytest.raises(ConfigError, match="tool format own"):
        find_format("")


@pytest.mark.parametrize(
    "fields",
    [
        {"head": "no name", "tail": ""},
        {"head": "<{name}>", "tail": "", "trigger": "<c>"},
        {"head": "<{name}>", "tail": "", "trigger": "<{name}"},
        {"head": "<{name}>", "tail": ""},
    ],
)
def test_a_format_that_cannot_work_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="bad"):
        ToolFormat("bad", lambda _template: True, **fields)
