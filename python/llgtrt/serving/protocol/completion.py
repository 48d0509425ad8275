"""The body of ``POST /v1/completions``."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from pydantic.config import JsonDict

from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.constraint_fields import ConstraintFields
from llgtrt.serving.protocol.disaggregation import DividedFields

PROMPT_SCHEMA: JsonDict = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    ]
}


class CompletionRequest(ConstraintFields, DividedFields):
    """A text to continue."""

    prompt: Any = Field(
        json_schema_extra=PROMPT_SCHEMA, description="Text or token ids; or an array of either."
    )
    echo: bool | None = Field(default=None, description="Put the prompt before the answer.")
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="Log-probabilities of this many likely tokens and of the chosen one.",
    )
    best_of: int | None = Field(
        default=None,
        ge=0,
        description="Generate so many answers and return the n whose tokens are likeliest on average. More "
        "than n not with stream or echo. All are counted as tokens. With "
        "use_beam_search: the number of beams.",
    )
    suffix: str | None = Field(
        default=None,
        description="What comes behind the text that is to be written, for models with tokens to fill in.",
    )


def prompts_of(
    prompt: Any, most: int, vocab_size: int, most_tokens: int | None, *, param: str = "prompt"
) -> list[str | list[int]]:
    """The prompts of a request as a list.

    Args:
        prompt: what the request holds.
        most: how many prompts a request may have.
        vocab_size: token ids are below it.
        most_tokens: the context; a longer list of tokens is refused before its members are looked at.
        param: the field that holds them.

    Checked by hand, not by pydantic: the members of a long list of the wrong type would each be an error.

    Raises:
        RequestError: it is empty, of another type, too long, or a token id is not in the vocabulary.
    """
    if isinstance(prompt, str):
        return [_text(prompt, param)]
    if not isinstance(prompt, list):
        raise RequestError(f"{param} must be a string, an array of token ids, or an array of either.", param)
    if not prompt:
        raise RequestError(f"{param} is empty.", param)
    if _is_int(prompt[0]):
        return [_tokens(prompt, param, vocab_size, most_tokens)]
    if len(prompt) > most:
        raise RequestError(f"{param} may hold at most {most} {param}s.", param)
    if isinstance(prompt[0], str):
        return [_text(text, f"{param}[{index}]") for index, text in enumerate(prompt)]
    return [
        _tokens(tokens, f"{param}[{index}]", vocab_size, most_tokens) for index, tokens in enumerate(prompt)
    ]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any, param: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{param} must be a string.", param)
    # An empty one is fine where the model has a token that begins a text; else the core refuses it.
    return value


def _tokens(value: Any, param: str, vocab_size: int, most_tokens: int | None) -> list[int]:
    if not isinstance(value, list):
        raise RequestError(f"{param} must be a string or an array of token ids.", param)
    if not value:
        raise RequestError(f"{param} is empty.", param)
    if most_tokens is not None and len(value) > most_tokens:
        raise RequestError(
            f"This model's maximum context length is {most_tokens} tokens. However, you requested "
            f"{len(value)} tokens in {param}. Please reduce its length.",
            param,
            "context_length_exceeded",
        )
    for index, token in enumerate(value):
        if not _is_int(token) or not 0 <= token < vocab_size:
            raise RequestError(
                f"{param}[{index}] must be a token id from 0 to {vocab_size - 1}.", f"{param}[{index}]"
            )
    return value
