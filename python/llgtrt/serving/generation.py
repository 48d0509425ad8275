"""A started generation, and the response object of one that is not streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from llgtrt.engine import ChoiceDelta, Delta, Stream, Usage


@dataclass(slots=True)
class Generation:
    """A request that the core has accepted.

    Attributes:
        stream: its output; whoever holds the generation must close it with ``stream.cancel()``.
        streaming: the client asked for server-sent events: payloads are bytes, ready to write.
        response: builds the response object from the only payload of a request that is not streamed.
    """

    stream: Stream
    streaming: bool
    response: Callable[[Delta], dict[str, Any]]


def usage_object(usage: Usage | None) -> dict[str, Any]:
    """OpenAI's ``usage``."""
    if usage is None:
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
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
