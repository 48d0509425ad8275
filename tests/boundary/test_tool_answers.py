"""Random answers under the grammars of call formats, over the sim engine: what is written can be read."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from llgtrt import _native
from llgtrt.tools import (
    Answer,
    AnswerPlan,
    CallArguments,
    CallBegun,
    CallEnded,
    Event,
    Markup,
    Reasoning,
    ReasoningFormat,
    Text,
    Thinking,
    Tool,
    ToolFormat,
    answer_grammar,
    parse_answer,
)
from llgtrt.tools.families import harmony
from llgtrt.tools.families.hermes import HERMES
from llgtrt.tools.families.minicpm import MINICPM5
from llgtrt.tools.families.minimax import MINIMAX_M3
from llgtrt.tools.pair_arguments import PairSyntax
from llgtrt.tools.reasoning import HARMONY
from llgtrt.tools.registry import FAMILIES
from support.core import Core, engine_config

TOOLS = (
    Tool(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
        "tools[0].function.parameters",
    ),
    Tool(
        "get",
        {
            "type": "object",
            "properties": {
                "deep": {"type": "array", "items": {"$ref": "#/$defs/point"}, "maxItems": 2},
                "on": {"type": "boolean"},
            },
            "required": ["deep", "on"],
            "additionalProperties": False,
            "$defs": {
                "point": {
                    "type": "object",
                    "properties": {"x": {"type": "number", "minimum": 0, "maximum": 99}},
                    "required": ["x"],
                    "additionalProperties": False,
                }
            },
        },
        "tools[1].function.parameters",
    ),
    Tool("now", {"type": "object", "properties": {}, "additionalProperties": False}, "x"),
)
SCHEMAS = {tool.name: tool.schema for tool in TOOLS}
CONTROL = Markup({"<|im_start|>": 258, "<|im_end|>": 259})
MARKED = ToolFormat(
    name="control",
    detects=lambda _template: False,
    trigger="<|im_start|>[",
    section_begin="<|im_start|>[",
    head='{"name": "{name}", "arguments": ',
    tail="}",
    separator=", ",
    section_end="]<|im_end|>",
)
"""Calls between control tokens, as Mistral's and others' are."""

MARKED_PAIRS = ToolFormat(
    name="control-pairs",
    detects=lambda _template: False,
    trigger="<|im_start|>",
    head="<|im_start|>{name}:",
    tail="<|im_end|>",
    arguments=PairSyntax("<|im_start|><{key}>", "<|im_end|></{key}>", quotes=("<![CDATA[", "]]>")).style(),
)
"""Arguments between control tokens as well, as MiniMax M3's are."""

ANSWER = Answer(
    {
        "json_schema": {
            "type": "object",
            "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
            "required": ["n"],
            "additionalProperties": False,
        }
    },
    "json_schema",
    "response_format",
)
FORMATS = [*FAMILIES, *(one.marked for one in FAMILIES if one.marked is not None), MARKED, MARKED_PAIRS]


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    core = Core(engine_config())
    yield core
    core.engine.shutdown()


def answer(core: Core, plan: AnswerPlan, seed: int, max_tokens: int = 3500) -> tuple[str, str]:
    """The text of a random answer and its finish reason."""
    grammar = json.dumps({"grammars": answer_grammar(plan).grammars})
    handle = core.submit(
        grammar=_native.GrammarSpec.llguidance(grammar),
        control_text=plan.names_control,
        output="final",
        seed=seed,
        max_tokens=max_tokens,
    )
    (delta,) = core.finish(handle)
    assert delta.error is None, delta.error
    (choice,) = delta.choices
    assert choice.finish_reason is not None
    return choice.text, choice.finish_reason


def accepted(core: Core, plan: AnswerPlan, texts: list[str]) -> list[bool]:
    """Which of some texts, without control tokens, the grammar of a plan allows."""
    grammar = _native.GrammarSpec.llguidance(json.dumps({"grammars": answer_grammar(plan).grammars}))
    report = json.loads(core.engine.report(grammar, instances=[json.dumps(text) for text in texts]))
    assert report["ok"], report["errors"]
    return [instance["accepted"] for instance in report["instances"]]


def pieces(text: str, seed: int) -> list[str]:
    """The text, cut anywhere."""
    source = random.Random(seed)
    cuts = sorted(source.randrange(len(text) + 1) for _ in range(source.randrange(12)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def calls_of(events: list[Event]) -> list[tuple[str, str]]:
    """Name and arguments of every call; checks the order of the events."""
    calls: list[tuple[str, str]] = []
    open_call = False
    for event in events:
        if isinstance(event, CallBegun):
            assert not open_call
            assert event.index == len(calls)
            calls.append((event.name, ""))
            open_call = True
        elif isinstance(event, CallArguments):
            assert open_call
            assert event.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + event.text)
        elif isinstance(event, CallEnded):
            assert open_call
            open_call = False
        else:
            assert not open_call
    return calls


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def check_calls(events: list[Event]) -> list[tuple[str, str]]:
    calls = calls_of(events)
    for name, arguments in calls:
        Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))
    return calls


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_p12_required_calls_are_valid_and_nothing_else(core: Core, one: ToolFormat) -> None:
    plan = AnswerPlan(CONTROL, one, TOOLS, required=True)
    names: set[str] = set()
    for seed in range(12):
        text, reason = answer(core, plan, seed)
        assert reason == "stop", text
        events = parse_answer(plan, [text])
        assert text_of(events) == "", text
        calls = check_calls(events)
        assert sum(isinstance(event, CallEnded) for event in events) == len(calls) >= 1
        names.update(name for name, _ in calls)
        for cut in range(4):
            assert parse_answer(plan, pieces(text, cut)) == events
    assert len(names) > 1


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_several_calls_only_where_they_are_allowed(core: Core, one: ToolFormat) -> None:
    plan = AnswerPlan(CONTROL, one, TOOLS, required=True)
    begin, end = CONTROL.shown(one.section_begin), CONTROL.shown(one.section_end)
    calls = []
    for seed in range(2):
        text, reason = answer(core, dataclasses.replace(plan, parallel=False), seed)
        assert reason == "stop"
        assert len(check_calls(parse_answer(plan, [text]))) == 1
        calls.append(text.removeprefix(begin).removesuffix(end))
    second = calls[1].replace(":0", ":1") if "{index}" in one.head else calls[1]
    both = begin + calls[0] + CONTROL.shown(one.separator) + second + end
    if one.parallel:
        events = parse_answer(plan, [both])
        assert len(check_calls(events)) == 2
        for seed in range(20):
            assert parse_answer(plan, pieces(both, seed)) == events
    if not plan.names_control:
        assert accepted(core, plan, [both]) == [one.parallel]
        assert accepted(core, dataclasses.replace(plan, parallel=False), [both]) == [False]


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_a_cut_answer_gives_the_arguments_so_far(core: Core, one: ToolFormat) -> None:
    plan = AnswerPlan(CONTROL, one, TOOLS[:1], required=True, parallel=False)
    whole, _ = answer(core, plan, 3)
    ((_, arguments),) = calls_of(parse_answer(plan, [whole]))
    for end in range(len(whole)):
        events = parse_answer(plan, pieces(whole[:end], end), cut=True)
        assert text_of(events) == "", whole[:end]
        for name, begun in calls_of(events):
            assert name == "get_weather"
            assert arguments.startswith(begun)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_free_text_shows_no_markup(core: Core, one: ToolFormat) -> None:
    plan = AnswerPlan(CONTROL, one, TOOLS)
    for seed in range(8):
        text, reason = answer(core, plan, seed)
        events = parse_answer(plan, [text], cut=reason == "length")
        check_calls(events)
        if not any(isinstance(event, CallBegun) for event in events):
            assert text_of(events) == text
        for cut in range(3):
            assert parse_answer(plan, pieces(text, cut), cut=reason == "length") == events


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_text_before_a_call(core: Core, one: ToolFormat) -> None:
    """What a call looks like behind text, wherever the answer is cut into pieces."""
    if not one.trigger:
        pytest.skip("calls of this format stand alone")
    called = AnswerPlan(CONTROL, one, TOOLS, required=True)
    text = "Let me look < [ that up.\n\n" + answer(core, called, 1)[0]
    plan = dataclasses.replace(called, required=False)
    events = parse_answer(plan, [text])
    assert text_of(events) == "Let me look < [ that up."
    assert check_calls(events)
    for seed in range(40):
        assert parse_answer(plan, pieces(text, seed)) == events


@pytest.mark.parametrize("one", [one for one in FORMATS if one.trigger], ids=lambda one: one.name)
def test_p11_a_call_or_an_answer_of_a_schema(core: Core, one: ToolFormat) -> None:
    plan = AnswerPlan(CONTROL, one, TOOLS, answer=ANSWER)
    kinds = set()
    for seed in range(16):
        text, reason = answer(core, plan, seed)
        assert reason == "stop"
        events = parse_answer(plan, pieces(text, seed))
        calls = check_calls(events)
        kinds.add(bool(calls))
        if calls:
            assert text_of(events) == ""
        else:
            Draft202012Validator(ANSWER.entry["json_schema"]).validate(json.loads(text_of(events)))
    # The sim engine writes no control token that it need not.
    assert kinds == ({False} if CONTROL.has_control(one.trigger) else {True, False})


@pytest.mark.parametrize("one", [one for one in FORMATS if one.trigger], ids=lambda one: one.name)
def test_no_tool_may_be_called(core: Core, one: ToolFormat) -> None:
    plan = AnswerPlan(CONTROL, one, ())
    # A control token's name, written out, is text and no mark.
    texts = ["plain text", f"a {plan.trigger} b"]
    assert accepted(core, plan, texts) == [True, CONTROL.has_control(plan.trigger)]


THINK = ReasoningFormat("think", "<think>", "</think>")


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("most_chars", [20, 200])
def test_thinking_then_a_call(core: Core, opened: bool, most_chars: int) -> None:
    thinking = Thinking(THINK, opened, most_chars)
    plan = AnswerPlan(CONTROL, HERMES, TOOLS, required=True, thinking=thinking)
    thoughts = 0
    for seed in range(10):
        text, reason = answer(core, plan, seed, 1500)
        if reason == "length":
            continue
        events = parse_answer(plan, [text])
        assert check_calls(events)
        assert text_of(events) == ""
        thought = "".join(event.text for event in events if isinstance(event, Reasoning))
        assert len(thought) <= most_chars
        assert "think>" not in thought
        thoughts += bool(thought)
        for cut in range(4):
            assert parse_answer(plan, pieces(text, cut)) == events
    if opened:
        assert thoughts


@pytest.mark.parametrize("kind", ["auto", "required", "answer", "text"])
def test_channels(core: Core, kind: str) -> None:
    """gpt-oss: thinking, answer and call are messages of their own."""
    plan = AnswerPlan(
        CONTROL,
        None if kind == "text" else harmony.HARMONY,
        () if kind == "text" else TOOLS,
        required=kind == "required",
        answer=ANSWER if kind == "answer" else None,
        thinking=Thinking(HARMONY, open=False, most_chars=30),
    )
    for seed in range(10):
        text, reason = answer(core, plan, seed)
        assert reason == "stop"
        events = parse_answer(plan, [text])
        calls = check_calls(events)
        assert bool(calls) or kind != "required"
        shown = text_of(events)
        assert "<|channel|>" not in shown
        assert not (calls and shown)
        if kind == "answer" and not calls:
            Draft202012Validator(ANSWER.entry["json_schema"]).validate(json.loads(shown))
        for cut in range(4):
            assert parse_answer(plan, pieces(text, cut)) == events
    whole = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
        "<|constrain|>json<|message|>{}"
    )
    if kind in ("auto", "required"):
        assert accepted(core, plan, [whole]) == [True]
        assert parse_answer(plan, [whole])[:2] == [Reasoning("Hm."), CallBegun(0, "now")]


def test_errors_name_the_schema(core: Core) -> None:
    bad: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    plan = AnswerPlan(CONTROL, HERMES, (*TOOLS, Tool("bad", bad, "tools[3].function.parameters")))
    grammar = answer_grammar(plan)
    handle = core.submit(grammar=_native.GrammarSpec.llguidance(json.dumps({"grammars": grammar.grammars})))
    (delta,) = core.finish(handle)
    assert delta.error is not None
    assert delta.error.param == "grammars[4].json_schema.properties.a.type"
    assert ("grammars[4].json_schema", "tools[3].function.parameters") in grammar.places


def test_lists_and_objects_between_tags_are_bounded_as_their_schema_says(core: Core) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "l": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"s": {"type": "string", "maxLength": 3}, "n": {"enum": [1, 2]}},
                    "required": ["n"],
                },
                "minItems": 1,
                "maxItems": 2,
            }
        },
        "required": ["l"],
    }
    plan = AnswerPlan(Markup({}), MINIMAX_M3, (Tool("f", schema, "x"),), required=True)
    item, other = "<item><n>1</n></item>", '<item><s>"ab"</s><n>2</n></item>'
    lists = {
        item: True,
        item + other: True,
        "": False,
        item * 3: False,
        "<item></item>": False,
        "<item><n>3</n></item>": False,
    }
    texts = [f'<tool_call>\n<invoke name="f"><l>{inner}</l></invoke>\n</tool_call>' for inner in lists]
    marked = [text.replace("<", "]<]minimax[>[<") for text in texts]
    assert accepted(core, plan, marked) == list(lists.values())
    ((_, arguments),) = calls_of(parse_answer(plan, [marked[1]]))
    assert json.loads(arguments) == {"l": [{"n": 1}, {"s": "ab", "n": 2}]}


def test_a_string_may_stand_in_a_cdata_block_where_the_model_knows_them(core: Core) -> None:
    text: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    plan = AnswerPlan(Markup({}), MINICPM5, (Tool("f", text, "x"),), required=True)
    values = {
        "x & y": "x & y",
        "<![CDATA[a </param> b\n]]>": "a </param> b\n",
        "<![CDATA[": None,
        "<![CDATA[a]]> b": None,
    }
    texts = [f'<function name="f"><param name="a">{value}</param></function>' for value in values]
    assert accepted(core, plan, texts) == [meant is not None for meant in values.values()]
    for whole, meant in zip(texts, values.values(), strict=True):
        if meant is not None:
            ((_, arguments),) = calls_of(parse_answer(plan, [whole]))
            assert json.loads(arguments) == {"a": meant}
