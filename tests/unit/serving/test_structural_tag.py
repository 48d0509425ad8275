"""Structural tags: what their grammars accept, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llgtrt import _native
from llgtrt.serving import RequestError
from llgtrt.serving.protocol.structural_tag import structural_tag
from llgtrt.tools import ControlTokens

CONTROL = ControlTokens(
    ("<|call|>", "<|end|>", "<|two|>"), lambda name: [9, 8] if "two" in name else [len(name)]
)

DIGITS = {"type": "regex", "pattern": "[0-9]+"}
ANY = {"type": "any_text"}
EMPTY: dict[str, Any] = {"type": "star", "content": {"type": "const_string", "value": "-"}}


def tag(begin: str, content: dict[str, Any] = DIGITS, end: Any = "</t>", **more: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end, **more}


def triggered(**members: Any) -> dict[str, Any]:
    tags = [tag("<t=a>"), tag("<t=b>", {"type": "json_schema", "json_schema": {"enum": [1, "x"]}})]
    return {"type": "triggered_tags", "triggers": ["<t="], "tags": tags, **members}


def accepted(format: dict[str, Any], texts: list[str]) -> list[bool]:
    """Which texts a format's grammar holds."""
    constraint = structural_tag({"type": "structural_tag", "format": format}, "t", ControlTokens())
    report = _native.GrammarChecker("{}").report(
        constraint.grammar, instances=[json.dumps(text) for text in texts], places=list(constraint.places)
    )
    found = json.loads(report)
    assert found["ok"], found["errors"]
    return [verdict["accepted"] for verdict in found["instances"]]


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ({"type": "const_string", "value": 'a"\n'}, ['a"\n'], ["a", ""]),
        (DIGITS, ["1", "123"], ["", "1a"]),
        ({"type": "grammar", "grammar": 'root ::= "a" | "b"'}, ["a", "b"], ["c"]),
        ({"type": "json_schema", "json_schema": {"enum": [1, 2]}}, ["1"], ["3"]),
        (
            {"type": "json_schema", "json_schema": {"const": [1, 2]}, "any_whitespace": False},
            ["[1, 2]"],
            ["[1,2]"],
        ),
        (
            {
                "type": "json_schema",
                "json_schema": {"const": [1, 2]},
                "any_whitespace": False,
                "separators": [",", ":"],
            },
            ["[1,2]"],
            ["[1, 2]"],
        ),
        (
            {"type": "json_schema", "json_schema": {"const": [1, 2]}, "max_whitespace_cnt": 1},
            ["[1, 2]", "[1,2]"],
            ["[1,  2]"],
        ),
        (ANY, ["", "anything\nat all"], []),
        ({**ANY, "excludes": ["<t", "z"]}, ["", "<a"], ["a<t", "z"]),
        (
            {"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, DIGITS, ANY]},
            ["a1", "a1 and more"],
            ["a", "1"],
        ),
        (
            {"type": "or", "elements": [DIGITS, {"type": "const_string", "value": "x"}]},
            ["1", "x"],
            ["", "x1"],
        ),
        ({"type": "optional", "content": DIGITS}, ["", "1"], ["x"]),
        ({"type": "plus", "content": tag("<a>")}, ["<a>1</t>", "<a>1</t><a>2</t>"], ["", "<a>1</t>x"]),
        ({"type": "star", "content": tag("<a>")}, ["", "<a>1</t><a>2</t>"], ["<a>"]),
        (
            {"type": "repeat", "content": tag("<a>"), "min": 1, "max": 2},
            ["<a>1</t>", "<a>1</t><a>2</t>"],
            ["", "<a>1</t><a>2</t><a>3</t>"],
        ),
        (
            {"type": "repeat", "content": tag("<a>"), "min": 2, "max": -1},
            ["<a>1</t>" * 2, "<a>1</t>" * 5],
            ["<a>1</t>"],
        ),
        (tag("<a>", ANY), ["<a></t>", "<a>some < text</t>"], ["<a>", "<a>x</t>y", "<a>x</t></t>"]),
        (tag("<a>", {**ANY, "excludes": ["z"]}), ["<a>y</t>"], ["<a>z</t>"]),
        (tag("<a>", DIGITS, ["</a>", "</b>"]), ["<a>1</a>", "<a>1</b>"], ["<a>1</c>"]),
        (tag("<a>", DIGITS, ""), ["<a>1"], ["<a>1</t>"]),
        (
            tag("<a>", {"type": "sequence", "elements": [DIGITS, ANY]}),
            ["<a>1x</t>"],
            ["<a>x</t>", "<a>1x</t>y"],
        ),
        (tag("<a>", tag("<b>", ANY, "")), ["<a><b>text</t>"], ["<a><b>text"]),
        (
            triggered(),
            ["", "no tags < here", 'a <t=a>1</t> b <t=b>"x"</t> c', "<t=b>1</t>", "<t=a>1</t><t=a>2</t>"],
            ["<t=", "<t=c>1</t>", "a <t=a>x</t>", "<t=b>2</t>", "<t=a>1</t> <t="],
        ),
        # No text comes before the first of at least one tag: as xgrammar has it.
        (triggered(at_least_one=True), ["<t=a>1</t>", "<t=a>1</t> b <t=a>2</t>"], ["", "a", "a <t=a>1</t>"]),
        (
            triggered(stop_after_first=True),
            ["", "abc", "a <t=a>1</t>"],
            ["<t=a>1</t> b", "<t=a>1</t><t=a>1</t>"],
        ),
        (
            triggered(stop_after_first=True, at_least_one=True),
            ["<t=a>1</t>"],
            ["", "a<t=a>1</t>", "<t=a>1</t> "],
        ),
        (triggered(excludes=["z"]), ["a", "a <t=a>1</t>"], ["z", "z <t=a>1</t>", "<t=a>1</t> z"]),
        # The text before one trigger holds no other.
        (
            {
                "type": "triggered_tags",
                "triggers": ["<t", "<u"],
                "tags": [tag("<t>"), tag("<u>", DIGITS, "</u>")],
            },
            ["a <t>1</t> b <u>2</u> c", "<u>2</u>"],
            ["<t x <u>2</u>", "<u <t>1</t>", "a <t>1</t> <u"],
        ),
        # What ends the tag around them ends the text between tags.
        (
            tag("<all>", triggered(), "</all>"),
            ["<all></all>", "<all>x <t=a>1</t> y</all>"],
            ["<all>x", "<all>x</all> <t=a>1</t></all>", "<all><t=c></all>"],
        ),
        (
            {"type": "tags_with_separator", "tags": [tag("<a>"), tag("<b>")], "separator": ", "},
            ["", "<a>1</t>", "<a>1</t>, <b>2</t>"],
            ["<a>1</t>,<b>2</t>", "<a>1</t>, "],
        ),
        (
            {
                "type": "tags_with_separator",
                "tags": [tag("<a>")],
                "separator": ",",
                "at_least_one": True,
                "stop_after_first": True,
            },
            ["<a>1</t>"],
            ["", "<a>1</t>,<a>1</t>"],
        ),
        (
            {"type": "dispatch", "rules": [["n:", DIGITS], ["s:", {"type": "const_string", "value": "x;"}]]},
            ["", "free", "a n:12 b s:x; c", "n:1n:2"],
            ["n:", "s:y", "a n:x"],
        ),
        (
            {"type": "dispatch", "rules": [["n:", DIGITS]], "loop": False},
            ["free", "a n:12"],
            ["a n:12 b", "n:x"],
        ),
    ],
)
def test_what_a_format_accepts(format: dict[str, Any], good: list[str], bad: list[str]) -> None:
    assert accepted(format, good + bad) == [True] * len(good) + [False] * len(bad)


def test_the_older_form_is_triggered_tags() -> None:
    older = {
        "type": "structural_tag",
        "structures": [
            {"begin": "<t=a>", "schema": {"enum": [1]}, "end": "</t>"},
            {"begin": "<t=b>", "schema": '{"enum": ["x"]}', "end": "</t>"},
        ],
        "triggers": ["<t="],
    }
    constraint = structural_tag(json.dumps(older), "t", ControlTokens())
    texts = ['a <t=a>1</t> b <t=b>"x"</t>', "<t=a>2</t>"]
    report = json.loads(
        _native.GrammarChecker("{}").report(
            constraint.grammar, instances=[json.dumps(text) for text in texts]
        )
    )
    assert [verdict["accepted"] for verdict in report["instances"]] == [True, False]
    assert ("grammars[2].json_schema", "t.structures[1].schema") in constraint.places


def lark_of(format: dict[str, Any]) -> str:
    source = structural_tag({"format": format}, "t", CONTROL).source
    text: str = json.loads(source)["grammars"][0]["lark_grammar"]
    return text


def test_names_of_control_tokens_are_tokens() -> None:
    assert "<[8]>" in lark_of(tag("<|call|>f", DIGITS, "<|end|>"))
    for begin in ("<|call|>", {"type": "token", "token": "<|call|>"}):
        lark = lark_of({**tag("", DIGITS, {"type": "token", "token": "<|end|>"}), "begin": begin})
        assert "<[8]>" in lark
        assert "<[7]>" in lark
    # A name of several tokens is a text.
    assert "<[" not in lark_of({"type": "const_string", "value": "<|two|>"})
    # Text cannot hold a control token: nothing has to be kept out of what comes before it.
    calls = {
        "type": "triggered_tags",
        "triggers": ["<|call|>"],
        "tags": [tag("<|call|>f", DIGITS, "<|end|>")],
    }
    assert "lazy" not in lark_of(calls)


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (5, "t"),
        ({}, "t"),
        ({"format": DIGITS, "structures": [1]}, "t.structures"),
        ({"format": DIGITS, "more": 1}, "t.more"),
        ({"format": []}, "t.format.type"),
        ({"format": {"type": "qwen_xml_parameter", "json_schema": {}}}, "t.format.type"),
        ({"format": {"type": "any_tokens"}}, "t.format.type"),
        ({"format": {"type": "token_triggered_tags"}}, "t.format.type"),
        ({"format": {"type": "sequence", "elements": []}}, "t.format.elements"),
        ({"format": tag("")}, "t.format.begin"),
        ({"format": tag("<a>", forced=True)}, "t.format.forced"),
        ({"format": tag("<a>", {"type": "json_schema", "json_schema": 5})}, "t.format.content.json_schema"),
        ({"format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}}, "t.format.style"),
        (
            {"format": {"type": "json_schema", "json_schema": {}, "any_whitespace": False, "indent": 2}},
            "t.format.indent",
        ),
        (
            {
                "format": {
                    "type": "json_schema",
                    "json_schema": {},
                    "any_whitespace": False,
                    "separators": [","],
                }
            },
            "t.format.separators",
        ),
        (
            {"format": {"type": "json_schema", "json_schema": {}, "max_whitespace_cnt": True}},
            "t.format.max_whitespace_cnt",
        ),
        (
            {"format": {"type": "json_schema", "json_schema": {}, "string_value_delimiter_token": 4}},
            "t.format.string_value_delimiter_token",
        ),
        ({"format": {"type": "repeat", "content": DIGITS, "min": 2, "max": 1}}, "t.format.max"),
        ({"format": {"type": "repeat", "content": DIGITS, "min": 0, "max": 10**9}}, "t.format.max"),
        ({"format": {"type": "plus", "content": ANY}}, "t.format.content"),
        ({"format": {"type": "sequence", "elements": [ANY, ANY]}}, "t.format.elements[0]"),
        ({"format": triggered(tags=[tag("<t=a>", ANY, "")])}, "t.format.tags[0].content"),
        ({"format": triggered(tags=[tag("<u>")])}, "t.format.tags[0].begin"),
        ({"format": triggered(triggers=["<t=", "<t"])}, "t.format.tags[0].begin"),
        ({"format": triggered(triggers=["<t=", "x<t="], tags=[tag("<t=a>"), tag("x<t=>")])}, "t.format"),
        ({"format": triggered(excludes=["<"])}, "t.format"),
        ({"format": triggered(triggers=[])}, "t.format.triggers"),
        ({"format": triggered(triggers=["<|ca"], tags=[tag("<|call|>")])}, "t.format.tags[0].begin"),
        ({"format": tag("<a>", ANY, "x<|end|>")}, "t.format.content"),
        ({"format": {"type": "token", "token": "<|two|>"}}, "t.format.token"),
        ({"format": {"type": "token", "token": 8}}, "t.format.token"),
        ({"format": {"type": "dispatch", "rules": [["a"]]}}, "t.format.rules[0]"),
        ({"structures": [{"begin": "<a>", "end": "b"}], "triggers": ["<b"]}, "t.structures[0].begin"),
        (
            {"structures": [{"begin": "<a>", "schema": "{", "end": "b"}], "triggers": ["<"]},
            "t.structures[0].schema",
        ),
        ({"structures": [{"begin": "<a>", "end": "b"}], "triggers": []}, "t.triggers"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_path(value: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        structural_tag(value, "t", CONTROL)
    assert caught.value.param == param


def test_deep_and_large_tags_are_refused() -> None:
    deep: dict[str, Any] = DIGITS
    for _ in range(40):
        deep = {"type": "optional", "content": deep}
    many = {"type": "or", "elements": [DIGITS] * 2000}
    wide = triggered(
        triggers=[f"<{number}>" for number in range(1000)],
        tags=[tag(f"<{number}>") for number in range(500)],
    )
    for format in (deep, many, wide):
        with pytest.raises(RequestError, match="too"):
            structural_tag({"format": format}, "t", ControlTokens())


def test_a_schema_is_not_searched_for_control_tokens() -> None:
    asked: list[str] = []

    def encode(name: str) -> list[int]:
        asked.append(name)
        return [1]

    control = ControlTokens(("<|call|>",), encode)
    format = tag("<a>", {"type": "json_schema", "json_schema": {"const": "<|call|>"}})
    structural_tag({"format": format}, "t", control)
    assert asked == []
