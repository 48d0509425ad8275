"""A request as it crosses to the core: one JSON object, and beside it what would cost more as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from pydantic_core import to_json

from llgtrt._native import GenerateRequest, GrammarSpec

PIECE_CHARS = 64 * 1024
"""Of a text, that are encoded in one call: some tens of microseconds."""

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
    context_only: bool
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


@dataclass(frozen=True, slots=True)
class Handover:
    """What one server hands over to another, which goes on with the answer.

    Attributes:
        request_id: under which the first server's engine knows the sequence.
        first_tokens: the tokens that it generated.
        draft_tokens: its guesses at the next ones.
        state: where the KV cache is, in the engine's own form. The engine trusts it.
    """

    request_id: int
    first_tokens: list[int]
    draft_tokens: list[int]
    state: bytes


def generate_request(
    fields: Mapping[str, Any],
    prompts: list[str | list[int]],
    *,
    grammar: GrammarSpec | None = None,
    extras: Mapping[str, Any] | None = None,
    processors: Processors | None = None,
    handover: Handover | None = None,
) -> GenerateRequest:
    """The core's request.

    Args:
        fields: its members.
        prompts: texts, or token ids.
        grammar: the constraint.
        extras: what an input processor made beside the tokens (``PreparedInput``): numbers, lists of them,
            and tensors as tuples of the type of their elements, their shape and their bytes.
        processors: what changes the rows of logits.
        handover: what another server handed over: this request goes on from there.

    Raises:
        InvalidRequestError: a tensor's bytes do not fit its shape, or fields contradict each other.
        InternalError: the core does not know a member, or it is of another type; ``param`` is its path.
    """
    buffers: list[bytes] = []
    if handover is not None:
        said = {name: getattr(handover, name) for name in ("request_id", "first_tokens", "draft_tokens")}
        fields = {**fields, "handover": said}
    crossing: dict[str, Any] = {"request": fields}
    if extras:
        crossing["extras"] = {name: _extra(value, buffers) for name, value in extras.items()}
    # Of a number that is not finite the core says where it stands; as "NaN" outside of a text it is no JSON.
    text = to_json(crossing, inf_nan_mode="strings")
    given: dict[str, Any] = {"prompts": list(map(_crossing, prompts)), "grammar": grammar, "buffers": buffers}
    if processors is not None:
        given |= {"processors": processors.of_sequences, "processor_limit_s": processors.limit_s}
    if handover is not None:
        given["handover_state"] = handover.state
    return GenerateRequest(text, **given)


def _crossing(prompt: str | list[int]) -> str | list[bytes] | list[int]:
    """A prompt as it crosses. A text that is not ASCII is encoded for the core, in one go if it does that."""
    if isinstance(prompt, list) or len(prompt) <= PIECE_CHARS or prompt.isascii():
        return prompt
    starts = range(0, len(prompt), PIECE_CHARS)
    return [prompt[start : start + PIECE_CHARS].encode() for start in starts]


def _extra(value: Any, buffers: list[bytes]) -> Any:
    if not isinstance(value, tuple):
        return value
    element, shape, data = value
    buffers.append(data)
    return {"element": element, "shape": shape, "buffer": len(buffers) - 1}
