"""A started generation, and the response object of one that is not streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json, to_json

from llgtrt.engine import ChoiceDelta, Delta, Stream
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.output import Output, ResponseHead, TokenUsage
from llgtrt.serving.protocol.fields import GenerationFields
from llgtrt.serving.spliced import has_many, spliced


def _unchanged(error: Exception) -> Exception:
    return error


@dataclass(frozen=True, slots=True)
class Traits:
    """What a generation is, without prompt and answer.

    Attributes:
        operation: the kind of request, as OpenTelemetry names it.
        model: the model that answers.
        response_id: the id of the answer.
        asked: the request's fields.
        constraint: the kind of what constrains the answer.
    """

    operation: Literal["chat", "text_completion"]
    model: str
    response_id: str
    asked: GenerationFields
    constraint: str | None


@dataclass(slots=True)
class Generation:
    """A request that the core has accepted.

    Attributes:
        stream: its output; whoever holds the generation must close it with ``stream.cancel()``.
        streaming: the client asked for server-sent events: payloads are bytes, ready to write, or go through
            ``output``.
        plain: builds the response object from the only payload of a request that is not streamed, where
            there is no ``output``.
        reshape: changes the response object of an answer with an ``output``.
        output: makes events of structured payloads; ``None`` where the core makes them.
        explain: the error to show for one of the core's: it may name a field by its place in the grammar.
        traits: what is asked, for those who watch.
        splices: ``plain`` takes log-probabilities as they are, so that they can be written beside it.
    """

    stream: Stream
    streaming: bool
    plain: Callable[[Delta], dict[str, Any]]
    output: Output | None = None
    explain: Callable[[Exception], Exception] = _unchanged
    traits: Traits | None = None
    reshape: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    splices: bool = False

    async def response_parts(self, delta: Delta) -> list[bytes]:
        """The response object of the only payload as JSON, in parts where it is long."""
        if self.output is None and self.splices and has_many(delta):
            return await asyncio.to_thread(spliced, self.plain, delta)
        if self.output is not None:
            size = delta_size(delta) + self.output.size(True)
            return await in_proportion(size, self._response_of_output, self.output, delta)
        return [await in_proportion(delta_size(delta), self._plain_response, delta)]

    async def response(self, delta: Delta) -> bytes:
        """The response object of the only payload, as JSON."""
        return b"".join(await self.response_parts(delta))

    async def encode(self, delta: Delta, last: bool) -> bytes:
        """The part of a stream for a structured payload; needs an ``output``."""
        assert self.output is not None
        size = delta_size(delta) + self.output.size(last)
        return await in_proportion(size, self.output.encode, delta, last)

    def _response_of_output(self, output: Output, delta: Delta) -> list[bytes]:
        parts = output.response(delta)
        return parts if self.reshape is None else [to_json(self.reshape(from_json(b"".join(parts))))]

    def _plain_response(self, delta: Delta) -> bytes:
        return to_json(self.plain(delta))


def delta_size(delta: Delta) -> int:
    """How much work a delta is, in bytes of text about."""
    return sum(
        len(choice.text) + (choice.logprobs_bytes or 0) + (choice.prompt_logprobs_bytes or 0)
        for choice in delta.choices
    )


def response_object(
    object_name: str,
    head: ResponseHead,
    expanded_prompt: str | list[str] | None,
    choice: Callable[[ChoiceDelta], dict[str, Any]],
    delta: Delta,
) -> dict[str, Any]:
    """The members that chat and completion responses share, around the choices."""
    response: dict[str, Any] = {
        **head.members(object_name),
        "choices": [choice(one) for one in sorted(delta.choices, key=lambda one: one.index)],
        "usage": TokenUsage.of(delta.usage).openai(),
    }
    if expanded_prompt is not None:
        response["expanded_prompt"] = expanded_prompt
    return response


def logprobs_object(delta: ChoiceDelta) -> Any:
    """The log-probabilities that the core wrote as JSON."""
    return None if delta.logprobs is None else from_json(delta.logprobs)


def token_members(delta: ChoiceDelta) -> dict[str, Any]:
    """``token_ids`` and what is reported of the prompt, where the request asks for it."""
    members: dict[str, Any] = {}
    if delta.prompt_token_ids is not None:
        members["prompt_token_ids"] = delta.prompt_token_ids
    if delta.prompt_logprobs is not None:
        members["prompt_logprobs"] = from_json(delta.prompt_logprobs)
    if delta.token_ids or delta.prompt_token_ids is not None:
        members["token_ids"] = delta.token_ids
    return members


def receipt_member(delta: ChoiceDelta) -> dict[str, Any]:
    """``constraint``, where the core wrote a receipt of the choice."""
    return {} if delta.constraint is None else {"constraint": from_json(delta.constraint)}
