"""The grammar of an answer under a plan: thinking, then calls or something else.

Text is free until a call begins. From there on every byte is decided but those of the arguments, which follow
the schema of the tool. The grammar is a list of llguidance's: the first entry joins the others, each of which
is a schema that goes through the same checks and rewritings as one of ``response_format``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llgtrt.tools.arguments import RuleWriter
from llgtrt.tools.format import filled
from llgtrt.tools.markup import TEXT, pattern, quoted
from llgtrt.tools.plan import AnswerPlan, Thinking

MOST_NUMBERED_CALLS = 16
"""Calls of an answer in a format that numbers them: each number needs rules of its own."""


@dataclass(frozen=True)
class AnswerGrammar:
    """A grammar for the core.

    Attributes:
        grammars: llguidance's list of grammars.
        places: prefixes of paths in it, and what they are in the request; the first that fits counts.
    """

    grammars: list[dict[str, Any]]
    places: list[tuple[str, str]]


def answer_grammar(plan: AnswerPlan, *, param: str = "tools") -> AnswerGrammar:
    """The grammar of a plan that is constrained. ``param`` is what errors name that have no better place.

    Raises:
        UnsupportedSchemaError: a tool's schema does not fit the format; its path is that in the request.
    """
    rules = RuleWriter()
    body = _body(plan, rules)
    if plan.thinking is not None:
        body = f"{_thinking(plan, plan.thinking, rules)} {body}"
    return AnswerGrammar(*rules.listed(body, param))


def _thinking(plan: AnswerPlan, thinking: Thinking, rules: RuleWriter) -> str:
    markup = plan.markup
    most = "*" if thinking.most_chars is None else f"{{0,{thinking.most_chars}}}"
    end = thinking.format.end
    if markup.has_control(end):
        rules.rules.append(f"thought: THOUGHT {markup.lark(end)} BLANKS")
        rules.rules.append(rf"THOUGHT: /(.|\n){most}/")
    else:
        rules.rules.append("thought: thoughts BLANKS")
        rules.rules.append(rf"thoughts[lazy]: /(.|\n){most}{pattern(end)}/")
    rules.rules.append(r"BLANKS: /[ \n]{0,2}/")
    if thinking.open:
        return "thought"
    rules.rules.append(f"thinking: {markup.lark(thinking.format.begin)} thought")
    return "thinking?"


def _body(plan: AnswerPlan, rules: RuleWriter) -> str:
    answer = None
    mark = f"{plan.markup.lark(plan.answer_mark)} " if plan.answer_mark else ""
    if plan.answer is not None:
        answer = mark + rules.grammar(plan.answer.entry, plan.answer.member, plan.answer.param)
        rules.parts += plan.answer.parts
    if plan.format is None:
        return answer or mark + _text(rules)
    if not plan.tools:
        return answer or mark + _text_without_calls(plan, rules)
    if plan.required or answer is not None:
        section = _section(plan, rules, "")
        return section if plan.required else f"({section} | {answer})"
    trigger = plan.trigger
    if not trigger:
        return f"({_unmarked(plan, rules)} | {mark}{_text(rules)})"
    section = _section(plan, rules, trigger)
    if plan.markup.has_control(trigger):
        return f"({_text(rules)} {plan.markup.lark(trigger)} {section} | {_text(rules)})"
    rules.rules.append(f"lead[lazy]: /{TEXT}{pattern(trigger)}/")
    return f"(lead {section} | {_text(rules)})"


def _text(rules: RuleWriter) -> str:
    rule = f"TEXT: /{TEXT}/"
    if rule not in rules.rules:
        rules.rules.append(rule)
    return "TEXT"


def _text_without_calls(plan: AnswerPlan, rules: RuleWriter) -> str:
    if plan.markup.has_control(plan.trigger):
        return _text(rules)
    assert plan.format is not None
    marks = [plan.trigger] if plan.trigger else []
    if not marks:
        return _text(rules)
    inside = "|".join(pattern(mark) for mark in marks)
    rules.rules.append(f"TEXT: /{TEXT}/ & ~/{TEXT}({inside}){TEXT}/")
    return "TEXT"


def _section(plan: AnswerPlan, rules: RuleWriter, read: str) -> str:
    """Calls, of whose fixed text ``read`` has come already."""
    one, markup = plan.format, plan.markup
    assert one is not None
    style = one.arguments.of_model(markup)
    for number, tool in enumerate(plan.tools):
        arguments = style.grammar(rules, tool.schema, f"args_{number}", tool.param)
        rules.rules.append(f"arguments_{number}: {arguments}")

    def calls(before: str, index: int) -> str:
        heads = (
            f"{markup.lark((before + one.call_head(tool.name, index))[len(read) if not index else 0 :])} "
            f"arguments_{number}"
            for number, tool in enumerate(plan.tools)
        )
        return " | ".join(heads)

    rules.rules.append(f"first: {calls(one.section_begin, 0)}")
    return f"first {_rest(plan, rules, calls)}"


def _rest(plan: AnswerPlan, rules: RuleWriter, calls: Callable[[str, int], str]) -> str:
    """What comes behind the arguments of the first call."""
    one, markup = plan.format, plan.markup
    assert one is not None
    end = markup.lark(one.tail + one.section_end)
    if not (one.parallel and plan.parallel):
        return end
    between = one.tail + one.separator
    if "{index}" not in one.head:
        rules.rules.append(f"more: {calls(between, 1)}")
        return f"more* {end}"
    rules.rules += [f"more_{index}: {calls(between, index)}" for index in range(1, MOST_NUMBERED_CALLS)]
    more = ""
    for index in range(MOST_NUMBERED_CALLS - 1, 0, -1):
        rules.rules.append(f"rest_{index}: more_{index} {more}")
        more = f"rest_{index}?"
    return f"{more} {end}"


def _unmarked(plan: AnswerPlan, rules: RuleWriter) -> str:
    """Calls that nothing marks but the way the first begins."""
    one, markup = plan.format, plan.markup
    assert one is not None
    style = one.arguments.of_model(markup)
    first = []
    for number, tool in enumerate(plan.tools):
        arguments = style.grammar(rules, tool.schema, f"args_{number}", tool.param)
        heads = [filled(head, tool.name, 0) for head in one.openings]
        marked = [markup.lark(head) for head in heads if markup.has_control(head)]
        plain = "|".join(pattern(head) for head in heads if not markup.has_control(head))
        if plain:
            rules.rules.append(f"plain_{number}[lazy]: /{plain}/")
            marked.append(f"plain_{number}")
        rules.rules.append(f"opening_{number}: {' | '.join(marked)}")
        rules.rules.append(f"arguments_{number}: {arguments}")
        first.append(f"opening_{number} arguments_{number}")

    def calls(before: str, index: int) -> str:
        return " | ".join(
            f"{markup.lark(before + one.call_head(tool.name, index))} arguments_{number}"
            for number, tool in enumerate(plan.tools)
        )

    return f"({' | '.join(first)}) {_rest(plan, rules, calls)}"


def quoted_choices(texts: list[str]) -> str:
    """A Lark grammar of exactly one of some texts."""
    return "start: CHOICE\nCHOICE: " + " | ".join(map(quoted, texts))
