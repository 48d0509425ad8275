"""A started generation, and the response object of one that is not streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from llgtrt.engine import ChoiceDelta, Delta, Stream, Usage


def _unchanged(error: Exception) -> Exception:
    return error


@dataclass(slots=True)
class Generation:
    """A request that the core has accepted.

    Attributes:
        stream: its output; whoever holds the generation must close it with ``stream.cancel()``.
        streaming: the client asked for server-sent events: payloads are bytes, ready to write.
        response: builds the response object from the only payload of a request that is not streamed.
        encode: makes server-sent events of a structured payload and of whether it is the last; ``None``
            where the core makes them.
        explain: the error to show for one of the core's: it may name a field by its place in the grammar.
    """

    stream: Stream
    streaming: bool
    response: Callable[[Delta], dict[str, Any]]
    encode: Callable[[Delta, bool], bytes] | None = None
    explain: Callable[[Exception], Exception] = _unchanged


def usage_object(usage: Usage | None, reasoning_tokens: int | None = None) -> dict[str, Any]:
    """OpenAI's ``usage``; with the tokens of the thinking where the model may think."""
    if usage is None:
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    details = {}
    if reasoning_tokens is not None:
        tokens = min(reasoning_tokens, usage.completion_tokens)
        details = {"completion_tokens_details": {"reasoning_tokens": tokens}}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        **details,
    }


def response_object(
    object_name: str,
    response_id: str,
    created: int,
    model: str,
    expanded_prompt: str | list[str] | None,
    choice: Callable[[ChoiceDelta], dict[str, Any]],
    delta: Delta,
) -> dict[str, Any]:
    """The members that chat and completion responses share, around the choices."""
    response: dict[str, Any] = {
        "id": response_id,
        "object": object_name,
        "created": created,
        "model": model,
        "choices": [choice(one) for one in sorted(delta.choices, key=lambda one: one.index)],
        "usage": usage_object(delta.usage),
    }
    if expanded_prompt is not None:
        response["expanded_prompt"] = expanded_prompt
    return response


def logprobs_object(delta: ChoiceDelta) -> Any:
    """The log-probabilities that the core wrote as JSON."""
    return None if delta.logprobs is None else from_json(delta.logprobs)
