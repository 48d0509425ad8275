"""The bodies of ``POST /v1/embeddings`` and ``POST /v1/rerank``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llgtrt.serving.protocol.completion import PROMPT_SCHEMA
from llgtrt.serving.protocol.fields import MAX_COUNT, PromptLimit, RequestModel

MAX_INPUTS = 2048
"""As OpenAI has it."""


class EmbeddingsRequest(RequestModel):
    """Texts whose vectors are wanted. ``input`` is checked by hand: each wrong member would be an error."""

    model: str | None = Field(default=None, description="Name of the model; the only one if left out.")
    input: Any = Field(
        json_schema_extra=PROMPT_SCHEMA,
        description=f"Text or token ids; or an array of either, of at most {MAX_INPUTS}. Names of control "
        "tokens in a text stay text.",
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None,
        description="float (default): an array of numbers. base64: 32-bit floats, little-endian.",
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=MAX_COUNT,
        description="Keep so many numbers of each vector, from the first on, and scale what is left to "
        "length 1. It means something only for models that were trained for it. More than the vector has "
        "is an error.",
    )
    truncate_prompt_tokens: PromptLimit | None = Field(
        default=None,
        description="A longer input is cut behind so many tokens; -1: behind as many as the model takes.",
    )
    user: str | int | float | None = Field(default=None, description="Accepted; not used.")


class RerankRequest(RequestModel):
    """Documents to order by how well they fit a query."""

    model: str | None = Field(default=None, description="Name of the model; the only one if left out.")
    query: str = Field(min_length=1, description="What is looked for.")
    documents: list[str | dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_INPUTS,
        fail_fast=True,
        description="Texts, or objects with a text in `text`.",
    )
    truncate_prompt_tokens: PromptLimit | None = Field(
        default=None,
        description="Where query and document have more tokens together, the document is cut; -1: where they "
        "have more than the model takes.",
    )
    top_n: int | None = Field(
        default=None, ge=1, le=MAX_COUNT, description="Results to return; all if left out."
    )
    return_documents: bool | None = Field(
        default=None,
        description="Whether results have the document's text in `document.text`; true if left out.",
    )
    raw_scores: bool | None = Field(
        default=None,
        description="Scores as the model computes them. Else a model with one score per document gives it "
        "between 0 and 1 (its logistic function).",
    )
