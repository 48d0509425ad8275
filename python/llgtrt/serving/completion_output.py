"""Streamed completions in OpenAI's form, where Python and not the core writes them: with a hook around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import ChoiceDelta, Delta
from llgtrt.serving.errors import Failure
from llgtrt.serving.output import Output, TokenUsage, sse

DONE = b"data: [DONE]\n\n"


@dataclass
class CompletionOutput(Output):
    """``text_completion`` objects, streamed or whole.

    Attributes:
        head: the members that every chunk has.
        choice: one member of ``choices``.
        plain: the object of an answer that is not streamed.
        include_usage: a stream ends with the token counts.
        expanded_prompt: the prompt for the first chunk, where the client asks for it.
        continuous: with ``include_usage``: every chunk has the token counts so far.
    """

    head: dict[str, Any]
    choice: Callable[[ChoiceDelta], dict[str, Any]]
    plain: Callable[[Delta], dict[str, Any]]
    include_usage: bool
    expanded_prompt: str | list[str] | None
    continuous: bool = False
    _first: bool = field(default=True, init=False)

    def encode(self, delta: Delta, last: bool) -> bytes:
        """A chunk for each choice that has something new."""
        usage = {"usage": TokenUsage.of(delta.so_far).openai()} if self.continuous else {}
        parts = [
            self._event({"choices": [self.choice(one)], **usage})
            for one in delta.choices
            if one.text or one.finish_reason or one.logprobs_bytes is not None or one.token_ids
        ]
        if last:
            if self.include_usage:
                parts.append(self._event({"choices": [], "usage": TokenUsage.of(delta.usage).openai()}))
            parts.append(DONE)
        return b"".join(parts)

    def failed(self, failure: Failure) -> bytes:
        """OpenAI's error object, and the mark that nothing follows."""
        return sse(to_json(failure.openai())) + DONE

    def response(self, delta: Delta) -> list[bytes]:
        """The object for the only delta."""
        return [to_json(self.plain(delta))]

    def _event(self, members: dict[str, Any]) -> bytes:
        event = dict(self.head)
        if self._first:
            self._first = False
            if self.expanded_prompt is not None:
                event["expanded_prompt"] = self.expanded_prompt
        event.update(members)
        if self.include_usage:
            event.setdefault("usage", None)
        return sse(to_json(event))
