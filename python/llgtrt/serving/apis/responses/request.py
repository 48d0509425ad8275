"""The body of ``POST /v1/responses``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llgtrt.serving.protocol.constraint_fields import ConstraintFields, ResponseFormat
from llgtrt.serving.protocol.fields import RequestModel, TokenCount
from llgtrt.serving.protocol.tools import MAX_LISTED


class TextFormat(ResponseFormat):
    """What the text must look like: OpenAI's types, with members beside the type, and this server's."""

    name: str | None = None
    description: str | None = None
    strict: bool | None = Field(default=None, description="The schema is enforced whatever this says.")


class TextOptions(RequestModel):
    """The text of the answer."""

    format: TextFormat | None = None
    verbosity: str | None = Field(default=None, description="Accepted; not used.")


class ReasoningOptions(RequestModel):
    """Thinking before the answer."""

    effort: str | None = Field(
        default=None, max_length=40, description="For the chat template; 'none' asks for no thinking."
    )
    summary: str | None = Field(default=None, description="Accepted; the thinking itself is returned.")


class ResponsesTool(RequestModel):
    """A tool."""

    type: str = Field(
        min_length=1,
        max_length=256,
        description="'function'. Tools of other types are ignored, and named in the header "
        "X-Llgtrt-Ignored-Tools.",
    )
    name: str | None = Field(default=None, max_length=256, description="Name that a call gives.")
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="JSON schema of the arguments.")
    strict: bool | None = Field(default=None, description="The schema is enforced whatever this says.")


class InputTokensRequest(ConstraintFields):
    """A conversation. ``input`` is checked where it is translated."""

    input: str | list[Any] | None = Field(default=None, description="A text, or items of the conversation.")
    instructions: str | None = Field(default=None, description="A system message before all others.")
    previous_response_id: str | None = Field(
        default=None, max_length=200, description="A stored response; its conversation goes on."
    )
    tools: list[ResponsesTool] | None = Field(
        default=None, max_length=MAX_LISTED, fail_fast=True, description="Functions that the model may call."
    )
    tool_choice: Any = Field(
        default=None,
        description="'auto' (default), 'none', 'required', or an object that names one or more.",
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether an answer may call several tools; true if left out."
    )
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    truncation: Literal["auto", "disabled"] | None = Field(
        default=None, description="auto: where the context is too short the oldest turns are left out."
    )
    conversation: Any = Field(default=None, description="Not supported; use previous_response_id.")
    prompt: Any = Field(default=None, description="Not supported: this server holds no prompts.")


class ResponsesRequest(InputTokensRequest):
    """What to answer. Fields of this server's chat, such as ``seed`` or ``guided_regex``, count as well."""

    max_output_tokens: TokenCount | None = Field(default=None, description="Most tokens of the answer.")
    top_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Likely tokens at each position of the text."
    )
    include: list[str] | None = Field(
        default=None, max_length=64, fail_fast=True, description="'message.output_text.logprobs'."
    )
    store: bool | None = Field(default=None, description="Keep the response for later; true if left out.")
    background: bool | None = Field(
        default=None, description="Answer at once, and generate meanwhile; not with stream."
    )
