"""The bodies of llama.cpp's own routes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from llgtrt.serving.protocol.completion import PROMPT_SCHEMA
from llgtrt.serving.protocol.constraint_fields import ConstraintFields
from llgtrt.serving.protocol.fields import MAX_LOGIT_BIAS, MAX_TOKEN_ID, RequestModel

MAX_EXTRA = 256
MAX_RESPONSE_FIELDS = 64
BAN = -100.0
"""What ``false`` means as a bias."""


def _biases(value: Any) -> Any:
    """Pairs of a token and its bias, or an object, as pairs. ``false`` bans a token."""
    if value is None:
        return None
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > MAX_LOGIT_BIAS:
        raise PydanticCustomError(
            "logit_bias", f"must be an array of at most {MAX_LOGIT_BIAS} pairs of a token id and a bias"
        )
    return [_bias(pair) for pair in pairs]


def _bias(pair: Any) -> tuple[int, float]:
    if isinstance(pair, list | tuple) and len(pair) == 2:
        token, bias = pair
        if isinstance(token, str) and token.isascii() and token.isdigit() and len(token) <= 10:
            token = int(token)
        if bias is False:
            bias = BAN
        is_id = isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= MAX_TOKEN_ID
        if is_id and isinstance(bias, int | float) and not isinstance(bias, bool):
            return token, min(max(float(bias), BAN), -BAN)
    raise PydanticCustomError("logit_bias", "must hold pairs of a token id and a number, or false")


Biases = Annotated[
    list[tuple[int, float]] | None,
    BeforeValidator(_biases, json_schema_input_type=list[list[Any]] | dict[str, float] | None),
]


class LlamaCompletionRequest(ConstraintFields):
    """A text to continue, as llama.cpp takes it. Fields that chat and completions share count too."""

    prompt: Any = Field(default="", json_schema_extra=PROMPT_SCHEMA, description="Text or token ids.")
    logit_bias: Biases = Field(
        default=None, description="Pairs of a token id and a bias; false bans the token."
    )
    return_tokens: bool | None = Field(default=None, description="Return the ids of the answer's tokens.")
    response_fields: list[str] | None = Field(
        default=None,
        max_length=MAX_RESPONSE_FIELDS,
        fail_fast=True,
        description="Return these members only; `timings/prompt_n` is a member of a member.",
    )
    samplers: list[str] | None = Field(
        default=None, fail_fast=True, description="Accepted: the order of samplers is this server's own."
    )


class InfillExtra(RequestModel):
    """A text of another file."""

    filename: str | None = None
    text: str


class InfillRequest(LlamaCompletionRequest):
    """A text to write between two others."""

    input_prefix: str = Field(default="", description="What stands before.")
    input_suffix: str = Field(default="", description="What stands behind.")
    input_extra: list[InfillExtra] | None = Field(
        default=None, max_length=MAX_EXTRA, fail_fast=True, description="Texts of other files, before both."
    )
