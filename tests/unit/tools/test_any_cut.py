"""Whatever a model writes and however it is cut into pieces, the events are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llgtrt.tools import (
    AnswerPlan,
    CallArguments,
    CallBegun,
    Markup,
    Reasoning,
    Text,
    Thinking,
    Tool,
    parse_answer,
)
from llgtrt.tools.markup import CONTROL_CLOSE, CONTROL_OPEN
from llgtrt.tools.reasoning import FORMATS, HARMONY
from llgtrt.tools.registry import FAMILIES

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "on": {"type": "boolean"}, "l": {"type": "array"}},
}
TOOLS = (Tool("f", SCHEMA, "tools[0]"), Tool("fg", SCHEMA, "tools[1]"))
VALUES = [
    '{"a": "x\\"}", "on": true}',
    "{}",
    "<parameter=a>\nx<y\n</parameter>\n",
    "<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n",
    '<parameter name="on">true</parameter>\n',
    'a="x, )", on=True, l=[1, "]"]',
    '<param name="a">x</param><param name="on">true</param>',
    '<param name="a"><![CDATA[x</param>\n]]></param>',
    "]<]minimax[>[<a>x]<]minimax[>[</a>",
]


@st.composite
def answers(draw: st.DrawFn, plan: AnswerPlan) -> list[str]:
    """An answer in pieces: marks, parts of marks and anything."""
    one = plan.format
    assert one is not None
    marks = [one.section_begin, one.tail, one.separator, one.section_end, *VALUES]
    marks += [
        head.replace("{name}", name) for head in (one.head, *one.openings) for name in ("f", "fg", "no")
    ]
    if plan.thinking is not None:
        marks += [plan.thinking.format.begin, plan.thinking.format.end, plan.thinking.format.answer]
    shown = [plan.markup.shown(mark).replace("{index}", "0") for mark in marks if mark]
    whole = st.sampled_from(shown)
    part = st.tuples(whole, st.integers(1, 9)).map(lambda both: both[0][: both[1]])
    text = "".join(draw(st.lists(st.one_of(whole, whole, part, st.text('a <{\n"é', max_size=4)), max_size=9)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("one", FAMILIES, ids=lambda one: one.name)
def test_any_cut_gives_the_same_events(one: Any, thinks: bool) -> None:
    names = ("<|python_tag|>", "[TOOL_CALLS]", "<|channel|>", "<|message|>", "<|end|>")
    markup = Markup({name: number for number, name in enumerate(names)})
    reasoning = HARMONY if one.name == "harmony" else FORMATS[0]
    plans = [
        AnswerPlan(
            markup, one, TOOLS, required=required, thinking=Thinking(reasoning, opened) if thinks else None
        )
        for required in (False, True)
        for opened in (False, True)
    ]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data(), st.sampled_from(plans), st.booleans())
    def check(data: st.DataObject, plan: AnswerPlan, cut: bool) -> None:
        pieces = data.draw(answers(plan))
        events = parse_answer(plan, pieces, cut=cut)
        assert events == parse_answer(plan, ["".join(pieces)], cut=cut)
        begun = 0
        for event in events:
            if isinstance(event, CallBegun):
                assert event.index == begun
                begun += 1
            elif isinstance(event, CallArguments):
                assert event.index == begun - 1
            elif isinstance(event, Text):
                assert CONTROL_OPEN not in event.text
                assert CONTROL_CLOSE not in event.text

    check()


@pytest.mark.parametrize("before", ["\n", "\n {mark}", "{mark}\n", "\n{mark} {mark}", "\n" + CONTROL_OPEN])
def test_blanks_and_control_tokens_before_the_end_of_the_thinking_are_not_shown(before: str) -> None:
    markup = Markup({"<|end|>": 1, "<|python_tag|>": 2})
    plan = AnswerPlan(markup, None, (), thinking=Thinking(HARMONY, True))
    end = markup.shown(HARMONY.end)
    text = "a\nb" + before.replace("{mark}", markup.shown("<|python_tag|>")) + end + "c"
    for at in range(len(text)):
        assert parse_answer(plan, [text[:at], text[at:]], cut=False) == [Reasoning("a\nb"), Text("c")], at
    assert parse_answer(plan, list(text), cut=False) == parse_answer(plan, [text], cut=False)
