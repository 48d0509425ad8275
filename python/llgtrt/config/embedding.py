"""Section ``embedding``: vectors of texts, and documents in the order in which they fit a query."""

from typing import Literal

from pydantic import Field

from .section import Section


class EmbeddingConfig(Section):
    """What `/v1/embeddings` and `/v1/rerank` are answered with.

    Without `model` it is the served model itself, if that is a GGUF file. Memory for it is taken with the
    first request then, and at the start where it has a model of its own."""

    model: str | None = Field(
        default=None,
        description="A GGUF file for them alone, beside any engine: a model of embeddings, or one that\n"
        "scores documents. Its name in the API is the file's.",
    )
    pooling: Literal["auto", "mean", "cls", "last"] = Field(
        default="auto",
        description="How the vectors of a text's tokens become one: their mean, or that of the first (cls)\n"
        "or the last token. auto: as the model file says; the mean where it says nothing, as of models\n"
        "that were made to generate.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=2,
        le=1 << 20,
        description="Most tokens of an input. null: what the model was trained for, at most 2048.",
    )
    batch_tokens: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="Most tokens of a pass while nothing is generated. While something is, a pass has at\n"
        "most 64, or `llamacpp.prefill_chunk_tokens`; models that read a text in one go take one text then.",
    )
    max_queue_size: int = Field(
        default=64, ge=1, le=65_536, description="Requests in work or waiting; more are refused as overload."
    )
