"""The body of ``POST /v1/messages``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llgtrt.serving.protocol.chat import MAX_MESSAGES
from llgtrt.serving.protocol.constraint_fields import ConstraintFields
from llgtrt.serving.protocol.fields import RequestModel, StopStrings
from llgtrt.serving.protocol.tools import MAX_LISTED


class MessagesThinking(RequestModel):
    """Thinking before the answer."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(
        default=None, ge=1, description="The thinking ends after about so many tokens, 16384 at most."
    )


class MessagesTool(RequestModel):
    """A tool. One of another type than ``custom`` is run by Anthropic's servers, or known to its models."""

    type: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="'custom', also if left out. Tools of other types are ignored, and named in the header "
        "X-Llgtrt-Ignored-Tools.",
    )
    name: str | None = Field(default=None, max_length=256, description="Name that a call gives.")
    description: str | None = None
    input_schema: dict[str, Any] | None = Field(default=None, description="JSON schema of the input.")
    strict: bool | None = Field(default=None, description="The schema is enforced whatever this says.")


class MessagesToolChoice(RequestModel):
    """Which tools the model may call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(default=None, description="With the type tool: its name.")
    disable_parallel_tool_use: bool | None = Field(default=None, description="One call at most.")


class OutputFormat(RequestModel):
    """What the text of the answer must look like."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] | bool = Field(alias="schema", description="A JSON schema.")


class OutputConfig(RequestModel):
    """How to answer."""

    effort: str | None = Field(
        default=None, max_length=40, description="For the chat template, if it reads reasoning_effort."
    )
    format: OutputFormat | None = None


class CountTokensRequest(ConstraintFields):
    """A conversation. ``messages`` and ``system`` are checked where they are translated."""

    messages: list[dict[str, Any]] = Field(
        min_length=1, max_length=MAX_MESSAGES, fail_fast=True, description="The conversation so far."
    )
    system: str | list[Any] | None = Field(
        default=None, description="The system prompt: a text or blocks of text."
    )
    stop_sequences: StopStrings = Field(default=None, description="Texts that end the answer.")
    tools: list[MessagesTool] | None = Field(
        default=None, max_length=MAX_LISTED, fail_fast=True, description="Tools that the model may call."
    )
    tool_choice: MessagesToolChoice | None = Field(
        default=None, description="Which tools the model may call; auto if left out."
    )
    thinking: MessagesThinking | None = Field(
        default=None, description="Thinking before the answer; none if left out, where the template can tell."
    )
    output_config: OutputConfig | None = Field(default=None, description="How to answer.")
    output_format: OutputFormat | None = Field(
        default=None, description="The older name of output_config.format."
    )


class MessagesRequest(CountTokensRequest):
    """A conversation to answer. Fields of this server's chat, such as ``guided_regex``, count as well."""
