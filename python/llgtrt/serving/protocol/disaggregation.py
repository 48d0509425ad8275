"""Fields of a request that an orchestrator divides between two servers, by the names of trtllm-serve."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llgtrt.serving.protocol.fields import RequestModel, TokenIdField

MAX_FIRST_TOKENS = 4096
"""Most tokens that the first server may have generated: one, and what a grammar forces behind it."""


class DisaggregatedParams(RequestModel):
    """Which part of an answer a server is to make, and what the server before it said.

    Members that only other engines need, such as ``disagg_request_id``, are accepted and not used."""

    request_type: Literal["context_only", "generation_only", "context_and_generation"] = Field(
        description="context_only: evaluate the prompt and hand over. generation_only: go on from there."
    )
    first_gen_tokens: list[TokenIdField] | None = Field(
        default=None,
        max_length=MAX_FIRST_TOKENS,
        fail_fast=True,
        description="The tokens that the context server generated; the answer begins with them.",
    )
    ctx_request_id: int | None = Field(
        default=None, ge=0, lt=2**64, description="Under which the context server knows the request."
    )
    encoded_opaque_state: str | None = Field(
        default=None, description="The context server's state, sealed with the key that both servers have."
    )
    draft_tokens: list[TokenIdField] | None = Field(
        default=None, max_length=MAX_FIRST_TOKENS, fail_fast=True, description="Guesses at the next tokens."
    )
    schedule_style: int | str | None = Field(
        default=None, description="Only the context server first: 0 or 'context_first'."
    )


class DividedFields(RequestModel):
    """What chat and completion requests say about being divided between servers."""

    disaggregated_params: DisaggregatedParams | None = Field(
        default=None,
        description="One half of an answer that two servers make (docs/scaling.md). Only for servers with "
        "disaggregation.role. One answer to one prompt, without log-probabilities.",
    )
