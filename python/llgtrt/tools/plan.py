"""What an answer may consist of: decided once for a request, then followed by its grammar and its parser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llgtrt.tools.arguments import Part
from llgtrt.tools.format import ToolFormat
from llgtrt.tools.markup import Markup
from llgtrt.tools.reasoning import ReasoningFormat


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call.

    Attributes:
        name: its name.
        schema: the JSON schema of its arguments, which are an object.
        param: where the schema is in the request.
    """

    name: str
    schema: Any
    param: str


@dataclass(frozen=True)
class Answer:
    """The grammar of an answer that is not a call, as an entry of llguidance's list of grammars.

    Attributes:
        entry: the entry, without its name.
        member: the member of it that holds the text.
        param: where it is in the request.
        parts: the grammars that it refers to; their names begin like no others.
    """

    entry: dict[str, Any]
    member: str
    param: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Thinking:
    """Thinking before the answer.

    Attributes:
        format: its tags.
        open: the prompt ends within it, so the answer begins with it.
        most_chars: after so many characters the closing tag is forced; ``None``: never.
    """

    format: ReasoningFormat
    open: bool
    most_chars: int | None = None


@dataclass(frozen=True)
class AnswerPlan:
    """Thinking, then calls or an answer.

    Attributes:
        markup: the model's control tokens.
        format: the format of calls, ``None`` without tools.
        tools: the tools that may be called; none of them may where this is empty.
        required: the answer is a call.
        parallel: it may hold several.
        answer: the grammar of an answer that is not a call; ``None`` is any text.
        thinking: what comes before.
        show_control: names of control tokens that are no mark are a part of the text.
    """

    markup: Markup
    format: ToolFormat | None = None
    tools: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = True
    answer: Answer | None = None
    thinking: Thinking | None = None
    show_control: bool = False

    @property
    def constrained(self) -> bool:
        """Whether the answer needs a grammar."""
        if self.format is not None or self.answer is not None:
            return True
        return self.thinking is not None and self.thinking.most_chars is not None

    @property
    def trigger(self) -> str:
        """What begins calls in free text; empty if nothing marks them.

        Only as much of the format's as is one control token, or none: what follows is forced anyway.
        """
        if self.format is None or not self.format.trigger:
            return ""
        return self.markup.segments(self.format.trigger)[0][0]

    @property
    def answer_mark(self) -> str:
        """What an answer that is no call begins with; mostly nothing."""
        return "" if self.thinking is None else self.thinking.format.answer

    @property
    def free(self) -> bool:
        """Whether there may be any text before calls."""
        return self.format is not None and not self.required and self.answer is None

    @property
    def names_control(self) -> bool:
        """Whether the parser has to see control tokens."""
        if self.show_control:
            return True
        texts = []
        if self.format is not None and self.tools:
            one = self.format
            texts += [one.section_begin, one.head, one.tail, one.separator, one.section_end, *one.openings]
            texts += one.arguments.texts
        if self.thinking is not None:
            texts += [self.thinking.format.begin, self.thinking.format.end, self.answer_mark]
        return any(self.markup.has_control(text) for text in texts)
