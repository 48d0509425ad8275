"""What a chat answer may consist of on one model: its call format, its thinking tags, their grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llgtrt.engine import AsyncEngine, GrammarSpec, LlgtrtError, new_error
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.constraint import Constraint, json_text, with_own_options
from llgtrt.serving.protocol.tool_use import ToolUse
from llgtrt.tools import (
    Answer,
    AnswerPlan,
    ControlTokens,
    Markup,
    ReasoningFormat,
    Thinking,
    ToolFormat,
    UnsupportedSchemaError,
    answer_grammar,
    find_format,
    find_reasoning,
)
from llgtrt.tools.families.fallback import FALLBACK
from llgtrt.tools.grammar import quoted_choices
from llgtrt.tools.markup import slashed
from llgtrt.tools.reasoning import CHARS_PER_TOKEN, SCRATCH


def control_tokens(engine: AsyncEngine) -> ControlTokens:
    """The control tokens of an engine's model."""
    return ControlTokens(engine.model_info.special_tokens, lambda name: engine.encode(name, False))


@dataclass(frozen=True)
class AnswerFormats:
    """The formats of one model.

    Attributes:
        calls: how it writes calls.
        reasoning: its thinking tags, if it has any.
        markup: its control tokens, as far as the formats use them.
        control: all of its control tokens.
    """

    calls: ToolFormat = FALLBACK
    reasoning: ReasoningFormat | None = None
    markup: Markup = field(default_factory=lambda: Markup({}))
    control: ControlTokens = field(default_factory=ControlTokens)

    @classmethod
    def of_model(cls, engine: AsyncEngine, template: str, parser: str | None = None) -> AnswerFormats:
        """The formats that a chat template shows, or that the operator names.

        Raises:
            ConfigError: there is no format of that name.
        """
        calls, reasoning = find_format(template, parser), find_reasoning(template)
        texts = [text for one in (calls, calls.marked) if one is not None for text in _texts(one)]
        if reasoning is not None:
            texts += [reasoning.begin, reasoning.end, reasoning.answer]
        control = control_tokens(engine)
        return cls(calls, reasoning, control.markup(texts), control)

    def plan(
        self,
        use: ToolUse | None,
        constraint: Constraint | None,
        prompt: str,
        budget_tokens: int | None = None,
    ) -> AnswerPlan | None:
        """What the answer to a request may be; ``None`` where only the constraint counts, if any.

        Args:
            use: the request's tools.
            constraint: its constraint.
            prompt: the rendered prompt; it may end within the thinking.
            budget_tokens: how long the thinking may be.

        Raises:
            RequestError: tools and this constraint cannot be told apart.
        """
        thinking = self._thinking(prompt, budget_tokens)
        if use is None and (thinking is None or (not thinking.open and _is_verified(constraint))):
            return None
        calls = None if use is None else self.calls
        if use is not None and constraint is not None:
            if not use.callable:
                calls = None
            elif calls is not None and not (calls.trigger or use.required or self._marks_answers):
                marked = calls.marked
                calls = marked if marked and self.markup.has_control(marked.trigger) else FALLBACK
        if calls is None and thinking is None:
            return None
        answer = None if constraint is None else _answer(constraint, use, calls, self.markup)
        return AnswerPlan(
            markup=self.markup,
            format=calls,
            tools=() if use is None else use.callable,
            required=use is not None and use.required,
            parallel=use is not None and use.parallel,
            answer=answer,
            thinking=thinking,
        )

    @property
    def _marks_answers(self) -> bool:
        """Whether an answer that is no call has a mark of its own."""
        return self.reasoning is not None and bool(self.reasoning.answer)

    def opening(self, use: ToolUse | None, constraint: Constraint | None, budget: int | None) -> str:
        """What to put behind the prompt, so that a model without thinking tags thinks before its answer.

        Raises:
            RequestError: there is nothing that the thinking would come before.
        """
        if budget is None or self.reasoning is not None:
            return ""
        if use is None and constraint is None:
            raise RequestError(
                "This model has no thinking tags: a budget needs tools or a constraint on the answer.",
                "thinking.budget_tokens",
            )
        return SCRATCH.begin + "\n"

    def _thinking(self, prompt: str, budget_tokens: int | None) -> Thinking | None:
        one = self.reasoning or (None if budget_tokens is None else SCRATCH)
        if one is None:
            return None
        most = None if budget_tokens is None else budget_tokens * CHARS_PER_TOKEN
        end = prompt.rstrip()
        if not one.answer and end.endswith(one.end):
            # The template closed it: the model is not to think.
            return None
        return Thinking(one, end.endswith(one.begin), most)


def plan_grammar(plan: AnswerPlan, param: str) -> tuple[GrammarSpec, Callable[[Exception], Exception]]:
    """The grammar of a plan, and what makes the core's errors about it name the request's fields.

    Raises:
        RequestError: a tool's schema does not fit the call format.
    """
    try:
        grammar = answer_grammar(plan, param=param)
    except UnsupportedSchemaError as error:
        raise RequestError(f"{error.path}: {error.message}.", error.path, "invalid_grammar") from error

    grammars = [_without_residual(one) for one in grammar.grammars]
    return GrammarSpec.llguidance(json_text({"grammars": grammars}, param)), renamed(grammar.places)


def renamed(places: Sequence[tuple[str, str]]) -> Callable[[Exception], Exception]:
    """Makes errors in a grammar that was put together name the request's fields.

    Args:
        places: prefixes of paths in the grammar, and what they are in the request; the first that fits
            counts.
    """

    def explain(error: Exception) -> Exception:
        if not isinstance(error, LlgtrtError) or error.kind != "grammar":
            return error
        at = error.param or ""
        for prefix, place in places:
            if not prefix or at == prefix or at.startswith((f"{prefix}.", f"{prefix}[")):
                rest = at[len(prefix) :] if prefix else ""
                return new_error(type(error), error.message, place + rest)
        return error

    return explain


def _without_residual(grammar: dict[str, Any]) -> dict[str, Any]:
    """One grammar of several, whose schema is refused where no grammar holds it: parts are not checked."""
    if "json_schema" not in grammar:
        return grammar
    return {**grammar, "json_schema": with_own_options(grammar["json_schema"], "refuse", strict=False)}


def _is_verified(constraint: Constraint | None) -> bool:
    """Whether a check beside the grammar follows the answer: that needs the schema to be all of it."""
    schema = None if constraint is None else constraint.json_schema
    options = schema.get("x-guidance") if isinstance(schema, dict) else None
    return isinstance(options, dict) and options.get("residual") == "verify"


def _texts(one: ToolFormat) -> tuple[str, ...]:
    fixed = (one.section_begin, one.head, one.tail, one.separator, one.section_end)
    return (*fixed, *one.openings, *one.arguments.texts)


def _answer(constraint: Constraint, use: ToolUse | None, calls: ToolFormat | None, markup: Markup) -> Answer:
    """A constraint as one of several ways to answer."""
    kind, source = constraint.grammar.kind, constraint.grammar.source
    if kind in ("json_schema", "json_object"):
        return Answer({"json_schema": json.loads(source)}, "json_schema", constraint.param)
    beside = use is not None and use.callable and not use.required
    if beside and calls is not None and calls.trigger and not markup.has_control(calls.trigger):
        raise RequestError(
            f"{constraint.param}: this model marks calls of tools by plain text, which this kind of grammar "
            "could write too; use a JSON schema, or tool_choice 'required' or 'none'.",
            constraint.param,
        )
    if constraint.parts:
        start = json.loads(source)["grammars"][0]["lark_grammar"]
        return Answer({"lark_grammar": start}, "lark_grammar", constraint.param, constraint.parts)
    if kind == "lark" or (kind == "llguidance" and not source.lstrip().startswith("{")):
        return Answer({"lark_grammar": source}, "lark_grammar", constraint.param)
    if kind == "regex":
        return Answer({"lark_grammar": f"start: /{slashed(source)}/"}, "lark_grammar", constraint.param)
    if kind == "choice":
        texts: list[str] = json.loads(source)
        return Answer({"lark_grammar": quoted_choices(texts)}, "lark_grammar", constraint.param)
    raise RequestError(
        f"{constraint.param}: a list of grammars cannot be combined with tools or thinking.", constraint.param
    )
