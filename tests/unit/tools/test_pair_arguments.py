"""Arguments between tags and in Python's form, read and refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llgtrt.tools import AnswerPlan, Markup, Tool, UnsupportedSchemaError, answer_grammar
from llgtrt.tools.families.glm import GLM4
from llgtrt.tools.families.minicpm import MINICPM5
from llgtrt.tools.families.minimax import MINIMAX_M3
from llgtrt.tools.families.pythonic import PYTHONIC
from llgtrt.tools.families.qwen3_coder import QWEN3_CODER
from llgtrt.tools.format import ToolFormat

PLAIN = Markup({})
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "any"},
        "unit": {"enum": ["a", "b c"]},
        "on": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}},
        "short": {"type": "string", "maxLength": 3},
    },
    "required": ["text"],
}


def read(one: ToolFormat, text: str, markup: Markup = PLAIN) -> tuple[Any, str]:
    """The arguments and what follows them, the same however the text is cut."""
    results = set()
    for size in (1, 2, 3, 7, len(text)):
        reader = one.arguments.of_model(markup).reader(SCHEMA)
        out, rest = "", None
        for at in range(0, len(text), size):
            piece = text[at : at + size]
            if rest is not None:
                rest += piece
                continue
            more, rest = reader.feed(piece)
            out += more
        assert rest is not None
        results.add((out, rest))
    ((out, rest),) = results
    return json.loads(out), rest


def test_tags() -> None:
    text = (
        '<parameter=text>\na "quoted" \\ </parameter> x\n</parameter>\n'
        "<parameter=unit>\nb c\n</parameter>\n"
        '<parameter=list>\n["x", "</parameter>"]\n</parameter>\n'
        '<parameter=short>\n"a"\n</parameter>\n'
        "</function>\n</tool_call>"
    )
    assert read(QWEN3_CODER, text) == (
        {"text": 'a "quoted" \\ </parameter> x', "unit": "b c", "list": ["x", "</parameter>"], "short": "a"},
        "</function>\n</tool_call>",
    )


def test_names_and_values_by_turns() -> None:
    text = (
        "<arg_key>text</arg_key>\n<arg_value>1</arg_value>\n"
        "<arg_key>on</arg_key>\n<arg_value>true</arg_value>\n</tool_call>"
    )
    assert read(GLM4, text) == ({"text": "1", "on": True}, "</tool_call>")
    assert read(GLM4, "</tool_call>") == ({}, "</tool_call>")


def test_a_cdata_block_holds_what_looks_like_a_tag() -> None:
    text = (
        '<param name="text"><![CDATA[a </param>\n<b> ]] ]]></param><param name="unit">b c</param>'
        '<param name="list">["<![CDATA["]</param></function>'
    )
    assert read(MINICPM5, text) == (
        {"text": "a </param>\n<b> ]] ", "unit": "b c", "list": ["<![CDATA["]},
        "</function>",
    )
    # What only begins like one is text.
    for value in ("", "plain & <simple>", "<![CDAT", "a<![CDATA[b]]>"):
        read_, rest = read(MINICPM5, f'<param name="text">{value}</param></function>')
        assert (read_, rest) == ({"text": value}, "</function>")


@pytest.mark.parametrize("names", [{}, {"]<]minimax[>[": 7}], ids=["text", "control token"])
def test_tags_with_a_mark(names: dict[str, int]) -> None:
    """The mark of each tag is a control token, or text, as the model's vocabulary says."""
    markup = Markup(names)
    mark = markup.shown("]<]minimax[>[")
    text = (
        f"{mark}<text>a ]<] </text> b{mark}</text>{mark}<unit>b c{mark}</unit>{mark}<on>true{mark}</on>"
        f"{mark}<list>{mark}<item>x{mark}</item>{mark}<item></list>{mark}</item>{mark}</list>{mark}</invoke>"
    )
    assert read(MINIMAX_M3, text, markup) == (
        {"text": "a ]<] </text> b", "unit": "b c", "on": True, "list": ["x", "</list>"]},
        f"{mark}</invoke>",
    )


DEEP: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "qty": {"type": "integer"}},
            "required": ["sku"],
        },
        "tree": {
            "type": "object",
            "properties": {"below": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}},
        },
    },
    "properties": {
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 3},
        "none": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "open": {"type": "object", "additionalProperties": {"type": "integer"}},
        "unique": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "tree": {"$ref": "#/$defs/tree"},
    },
}


def test_references_do_not_make_a_grammar_without_end() -> None:
    wide = {"type": "object", "properties": {f"p{number}": {"$ref": "#/$defs/wide"} for number in range(100)}}
    tool = Tool("f", {**wide, "$defs": {"wide": wide}}, "p")
    grammar = answer_grammar(AnswerPlan(Markup({}), MINIMAX_M3, (tool,), required=True))
    assert len(grammar.grammars[0]["lark_grammar"].splitlines()) < 1000


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_lists_and_objects_between_tags(size: int) -> None:
    written = (
        "<lines><item><sku>a <b>\n</sku><qty>2</qty></item><item><sku></sku></item></lines>"
        "<none><item><item>1</item><item>2</item></item><item></item></none>"
        '<open>{"x": 1}</open><unique>["a"]</unique>'
        # Only so deep: the grammar would have no end.
        '<tree><below><below>{"below": {"n": 1}}</below></below></tree></invoke>'
    )
    text = "]<]minimax[>[<".join(written.split("<")).replace("]<]minimax[>[<b>", "<b>")
    reader = MINIMAX_M3.arguments.reader(DEEP)
    out, rest = "", ""
    for at in range(0, len(text), size):
        if rest:
            rest += text[at : at + size]
            continue
        more, behind = reader.feed(text[at : at + size])
        out, rest = out + more, behind or ""
    assert json.loads(out) == {
        "lines": [{"sku": "a <b>\n", "qty": 2}, {"sku": ""}],
        "none": [[1, 2], []],
        "open": {"x": 1},
        "unique": ["a"],
        "tree": {"below": {"below": {"below": {"n": 1}}}},
    }
    assert rest == "]<]minimax[>[</invoke>"


def test_python() -> None:
    text = 'text="a), (b=", on=True, list=["x, y"], short="")]'
    assert read(PYTHONIC, text) == ({"text": "a), (b=", "on": True, "list": ["x, y"], "short": ""}, ")]")
    assert read(PYTHONIC, ")]") == ({}, ")]")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"minProperties": 2}, "p.minProperties"),
        ({"anyOf": [{}]}, "p.anyOf"),
        ({"required": ["else"]}, "p.required"),
        ({"required": 1}, "p.required"),
        ({"properties": {"a<b": {}}, "required": []}, "p.properties.a<b"),
        ({"$ref": "#/nowhere"}, "p.$ref"),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_path(change: dict[str, Any], path: str) -> None:
    tool = Tool("f", {**SCHEMA, **change}, "p")
    with pytest.raises(UnsupportedSchemaError) as caught:
        answer_grammar(AnswerPlan(Markup({}), QWEN3_CODER, (tool,), required=True))
    assert caught.value.path == path


def test_a_reference_at_the_top_is_followed() -> None:
    tool = Tool("f", {"$ref": "#/$defs/a", "$defs": {"a": SCHEMA}}, "p")
    grammar = answer_grammar(AnswerPlan(Markup({}), QWEN3_CODER, (tool,), required=True))
    assert "<parameter=unit>" in grammar.grammars[0]["lark_grammar"]
    assert {"json_schema", "name"} == set(grammar.grammars[1])
