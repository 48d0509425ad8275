"""The body of ``POST /v1/chat/completions``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llgtrt.serving.protocol.constraint_fields import ConstraintFields
from llgtrt.serving.protocol.disaggregation import DividedFields
from llgtrt.serving.protocol.fields import RequestModel, TokenCount
from llgtrt.serving.protocol.tools import MAX_LISTED, ChatTool, FunctionDefinition

MAX_MESSAGES = 16_384
"""Each takes a few tokens: more would not fit any context."""


MAX_DOCUMENTS = 1024

MAX_BUDGET = 16_384
"""Tokens of a thinking budget: the grammar's states grow with it."""


class ThinkingOptions(RequestModel):
    """How long to think before the answer."""

    type: Literal["enabled", "disabled", "adaptive"] | None = Field(
        default=None, description="'disabled' asks the template for an answer without thinking."
    )
    budget_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_BUDGET,
        description="Thinking ends after about so many tokens (4 characters each).",
    )


class ChatRequest(ConstraintFields, DividedFields):
    """A conversation to continue.

    ``messages`` is checked by ``llgtrt.chat``, which knows what each role may hold.
    """

    messages: list[dict[str, Any]] = Field(
        min_length=1, max_length=MAX_MESSAGES, fail_fast=True, description="The conversation so far."
    )
    max_completion_tokens: TokenCount | None = Field(
        default=None, description="Most tokens of an answer; wins over max_tokens."
    )
    logprobs: bool | None = Field(
        default=None, description="Return log-probabilities of the answer's tokens."
    )
    top_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Likely tokens at each position; needs logprobs."
    )
    best_of: int | None = Field(
        default=None, ge=0, description="With use_beam_search: the number of beams; n if left out."
    )
    include_json_schema_in_prompt: bool | None = Field(
        default=None, description="Show the JSON schema of the answer to the chat template."
    )
    documents: list[dict[str, Any]] | None = Field(
        default=None,
        max_length=MAX_DOCUMENTS,
        fail_fast=True,
        description="What to answer from: objects with members such as `title` and `text`. Where the chat "
        "template does not show documents they join the system message.",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None,
        description="Variables for the chat template; the server's configuration lists the allowed.",
    )
    reasoning_effort: str | None = Field(
        default=None,
        max_length=40,
        description="For the chat template, if it reads this; 'none' asks for no thinking.",
    )
    thinking: ThinkingOptions | None = Field(
        default=None,
        description="Thinking before the answer; with a budget also for models without thinking tags, before "
        "a constraint.",
    )
    thinking_token_budget: int | None = Field(
        default=None, ge=1, le=MAX_BUDGET, description="vLLM's name of thinking.budget_tokens."
    )
    include_reasoning: bool | None = Field(
        default=None, description="false: the answer is sent without its thinking."
    )
    verbosity: str | None = Field(
        default=None, max_length=40, description="For the chat template, if it reads this."
    )
    add_generation_prompt: bool | None = Field(
        default=None, description="End the prompt with the header of an answer; true if left out."
    )
    continue_final_message: bool | None = Field(
        default=None, description="Go on with the final assistant message instead of beginning a new one."
    )
    tools: list[ChatTool] | None = Field(
        default=None, max_length=MAX_LISTED, fail_fast=True, description="Functions that the model may call."
    )
    tool_choice: Any = Field(
        default=None,
        description="'auto' (default), 'none', 'required', or an object that names one or more.",
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether an answer may call several tools; true if left out."
    )
    functions: list[FunctionDefinition] | None = Field(
        default=None, max_length=MAX_LISTED, fail_fast=True, description="The older name of tools."
    )
    function_call: Any = Field(
        default=None, description="The older name of tool_choice: 'none', 'auto' or an object with a name."
    )
    prompt_token_ids: Any = Field(
        default=None,
        json_schema_extra={"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        description="With disaggregated_params of generation_only: the prompt's tokens, as the context "
        "server returned them. The messages still say how the answer is read.",
    )
    modalities: list[str] | None = Field(default=None, fail_fast=True, description="Only ['text'].")

    @property
    def budget_tokens(self) -> int | None:
        """How long the thinking may be, in tokens; ``None``: as long as the answer."""
        own = None if self.thinking is None else self.thinking.budget_tokens
        return self.thinking_token_budget if own is None else own
