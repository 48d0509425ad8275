"""Reading answers: marks in odd places, control tokens, answers that follow no grammar."""

from __future__ import annotations

import pytest

from llgtrt.tools import (
    AnswerPlan,
    CallArguments,
    CallBegun,
    CallEnded,
    Markup,
    Reasoning,
    ReasoningFormat,
    Text,
    Thinking,
    Tool,
    parse_answer,
)
from llgtrt.tools.events import Event
from llgtrt.tools.families.hermes import HERMES
from llgtrt.tools.families.llama3 import LLAMA3

TOOL = Tool("f", {"type": "object"}, "tools[0]")
NONE = Markup({})
FREE = AnswerPlan(NONE, HERMES, (TOOL,))
THINK = ReasoningFormat("think", "<think>", "</think>")


def every_cut(plan: AnswerPlan, text: str, *, cut: bool = False) -> list[Event]:
    """The events, which are the same for the whole text, for its characters and for two halves."""
    events = parse_answer(plan, [text], cut=cut)
    assert parse_answer(plan, list(text), cut=cut) == events
    for at in range(len(text)):
        assert parse_answer(plan, [text[:at], text[at:]], cut=cut) == events
    return events


@pytest.mark.parametrize("text", ["", "a", "a <tool", "<<tool_call", "a\n\n", " <tool_call ", "x < y"])
def test_text_that_is_no_call_stays_as_it_is(text: str) -> None:
    assert every_cut(FREE, text) == ([Text(text)] if text else [])


def test_the_beginning_of_a_mark_is_no_text_of_a_cut_answer() -> None:
    assert every_cut(FREE, "So <tool_c", cut=True) == [Text("So ")]
    assert every_cut(FREE, "So <tool_call>\n{", cut=True) == [Text("So")]


def test_a_call_behind_text() -> None:
    text = 'Hm.\n<tool_call>\n{"name": "f", "arguments": {"a": "}\\"</tool_call>"}}\n</tool_call>'
    assert every_cut(FREE, text) == [
        Text("Hm."),
        CallBegun(0, "f"),
        CallArguments(0, '{"a": "}\\"</tool_call>"}'),
        CallEnded(0),
    ]


def test_what_follows_no_grammar_is_not_lost() -> None:
    wrong = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    assert every_cut(FREE, wrong) == [Text(wrong.removeprefix("<tool_call>"))]
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert every_cut(FREE, call + "\n and more")[-1] == Text("and more")


def test_an_unmarked_call_is_one_only_at_the_beginning() -> None:
    plan = AnswerPlan(NONE, LLAMA3, (TOOL,))
    call = '{"name": "f", "parameters": {"a": 1}}'
    assert every_cut(plan, call) == [CallBegun(0, "f"), CallArguments(0, '{"a": 1}'), CallEnded(0)]
    compact = '{"type":"function","name":"f","parameters":{}}'
    assert every_cut(plan, compact) == [CallBegun(0, "f"), CallArguments(0, "{}"), CallEnded(0)]
    for text in ("So: " + call, '{"name": "g", "parameters": {}}', '{"name"', " " + call):
        assert every_cut(plan, text) == [Text(text)]


def test_a_control_token_is_a_mark_and_its_name_is_not() -> None:
    markup = Markup({"<|python_tag|>": 5})
    plan = AnswerPlan(markup, LLAMA3, (TOOL,))
    assert plan.names_control
    shown = markup.shown("<|python_tag|>") + '{"name": "f", "parameters": {}}'
    assert every_cut(plan, shown)[0] == CallBegun(0, "f")
    text = '<|python_tag|>{"name": "f", "parameters": {}}'
    assert every_cut(plan, text) == [Text(text)]
    assert every_cut(plan, "a" + markup.shown("<|python_tag|>") + "b") == [Text("ab")]


@pytest.mark.parametrize("opened", [True, False])
def test_thinking(opened: bool) -> None:
    plan = AnswerPlan(NONE, HERMES, (TOOL,), thinking=Thinking(THINK, opened))
    begin = "" if opened else "\n<think>"
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    events = every_cut(plan, f"{begin}\nA <tool_call> </thin\n</think>\n\n{call}")
    assert events[0] == Reasoning("A <tool_call> </thin")
    assert events[1] == CallBegun(0, "f")
    assert every_cut(plan, f"{begin}\n\n</think>\n\nYes.") == [Text("Yes.")]
    assert every_cut(plan, f"{begin}never ends </th", cut=True) == [Reasoning("never ends")]


def test_an_answer_without_thinking() -> None:
    plan = AnswerPlan(NONE, thinking=Thinking(THINK, open=False))
    assert every_cut(plan, " <thin air") == [Text(" <thin air")]
