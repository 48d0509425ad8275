"""A request as it crosses to the core: one JSON object, and beside it what would cost more as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from pydantic_core import to_json

from llgtrt._native import GenerateRequest, GrammarSpec

OutputFormat = Literal["final", "deltas", "chat_sse", "completion_sse"]
LogprobsForm = Literal["chat", "completion", "tokens"]


class ServerFields(TypedDict, total=False):
    """What the server says of a request. The other members are fields of its API, under the same names.

    What each does, and what it is where it is left out, says ``GenerateRequest`` in
    ``rust/llgtrt-runtime/src/request.rs``.
    """

    most_prompt_tokens: int | None
    add_special: bool
    max_tokens: int | None
    clamp_max_tokens: bool
    generated_tokens: int
    answer_tokens: int | None
    return_context_logits: bool
    return_generation_logits: bool
    max_logits_bytes: int
    grammar_param: str | None
    receipt: str | None
    request_id: str
    echo: bool
    echo_logprobs: bool
    output: OutputFormat
    control_text: bool
    logprobs_form: LogprobsForm
    text_token_ids: bool
    response_id: str
    model: str
    created: int
    system_fingerprint: str | None
    include_usage: bool
    first_chunk_fields: str | None


@dataclass(frozen=True, slots=True)
class Processors:
    """What changes the rows of logits of a request.

    Attributes:
        of_sequences: names and callables for each sequence, by its index.
        limit_s: the longest that one call may take.
    """

    of_sequences: list[list[tuple[str, Callable[[tuple[int, ...], list[int], memoryview[float]], None]]]]
    limit_s: float


def generate_request(
    fields: Mapping[str, Any],
    prompts: list[str | list[int]],
    *,
    grammar: GrammarSpec | None = None,
    extras: Mapping[str, Any] | None = None,
    processors: Processors | None = None,
) -> GenerateRequest:
    """The core's request.

    Args:
        fields: its members.
        prompts: texts, or token ids.
        grammar: the constraint.
        extras: what an input processor made beside the tokens (``PreparedInput``): numbers, lists of them,
            and tensors as tuples of the type of their elements, their shape and their bytes.
        processors: what changes the rows of logits.

    Raises:
        InvalidRequestError: a tensor's bytes do not fit its shape, or fields contradict each other.
        InternalError: the core does not know a member, or it is of another type; ``param`` is its path.
    """
    buffers: list[bytes] = []
    crossing: dict[str, Any] = {"request": fields}
    if extras:
        crossing["extras"] = {name: _extra(value, buffers) for name, value in extras.items()}
    # Of a number that is not finite the core says where it stands; as "NaN" outside of a text it is no JSON.
    text = to_json(crossing, inf_nan_mode="strings")
    if processors is None:
        return GenerateRequest(text, prompts=prompts, grammar=grammar, buffers=buffers)
    return GenerateRequest(
        text,
        prompts=prompts,
        grammar=grammar,
        buffers=buffers,
        processors=processors.of_sequences,
        processor_limit_s=processors.limit_s,
    )


def _extra(value: Any, buffers: list[bytes]) -> Any:
    if not isinstance(value, tuple):
        return value
    element, shape, data = value
    buffers.append(data)
    return {"element": element, "shape": shape, "buffer": len(buffers) - 1}
