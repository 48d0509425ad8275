"""The bodies of ``POST /tokenize`` and ``POST /detokenize``."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from llgtrt.serving.protocol.chat import MAX_DOCUMENTS, MAX_MESSAGES
from llgtrt.serving.protocol.fields import RequestModel
from llgtrt.serving.protocol.tools import ChatTool


class TokenizeRequest(RequestModel):
    """A text, or a conversation whose prompt is meant."""

    model: str | None = Field(default=None, description="Name of the model; the served one if left out.")
    prompt: str | None = Field(default=None, description="A text.")
    content: str | None = Field(
        default=None,
        description="llama.cpp's name of the text; no BOS token is put in front, unless add_special is true.",
    )
    add_special: bool | None = Field(default=None, description="llama.cpp's name of add_special_tokens.")
    messages: list[dict[str, Any]] | None = Field(
        default=None, min_length=1, max_length=MAX_MESSAGES, fail_fast=True, description="A conversation."
    )
    tools: list[ChatTool] | None = Field(
        default=None, fail_fast=True, description="With messages: functions that the model may call."
    )
    documents: list[dict[str, Any]] | None = Field(
        default=None,
        max_length=MAX_DOCUMENTS,
        fail_fast=True,
        description="With messages: what to answer from.",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None, description="With messages: variables for the chat template."
    )
    add_generation_prompt: bool | None = Field(
        default=None, description="With messages: end with the header of an answer; true if left out."
    )
    continue_final_message: bool | None = Field(
        default=None, description="With messages: end within the final assistant message."
    )
    add_special_tokens: bool | None = Field(
        default=None,
        description="Whether the tokenizer puts its BOS token in front. Left out: as for an answer.",
    )
    return_token_strs: bool | None = Field(default=None, description="Return the text of each token.")


class DetokenizeRequest(RequestModel):
    """Tokens. ``tokens`` is checked by hand: each wrong member of a long list would be an error."""

    model: str | None = Field(default=None, description="Name of the model; the served one if left out.")
    tokens: Any = Field(json_schema_extra={"type": "array", "items": {"type": "integer"}})
