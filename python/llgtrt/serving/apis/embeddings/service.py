"""Vectors of texts, and documents in the order in which they fit a query."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import AsyncEngine, EmbedderInfo, Embeddings
from llgtrt.serving.apis.embeddings.request import MAX_INPUTS, EmbeddingsRequest, RerankRequest
from llgtrt.serving.errors import RequestError
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.protocol.completion import prompts_of
from llgtrt.serving.registry import Models
from llgtrt.serving.sampling import new_response_id

NOT_SUPPORTED = "not_supported"
JSON_BYTES = 12
"""A number of a vector, written out, about."""


class EmbeddingsService:
    """The embedders of the models, where they have one."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def embeddings(self, request: EmbeddingsRequest) -> bytes:
        """OpenAI's list of vectors as JSON.

        Raises:
            RequestError: a field is wrong, or this server's model makes no vectors.
            LlgtrtError: an input is refused, too many requests wait, or the embedder failed.
        """
        name, engine = self._find(request.model)
        info = engine.model_info.embedder
        if info is None or info.dimensions is None:
            why = "this engine has none" if info is None else "its model scores documents, for /v1/rerank"
            raise RequestError(
                f"There are no embeddings here: {why}. Start the server with --embedding-model and a GGUF "
                "file of a model of embeddings.",
                "model",
                NOT_SUPPORTED,
            )
        if request.dimensions is not None and request.dimensions > info.dimensions:
            raise RequestError(
                f"dimensions: the model's vectors have {info.dimensions} numbers.", "dimensions"
            )
        most = _most_tokens(request.truncate_prompt_tokens, info)
        inputs = await in_proportion(request.body_bytes, _inputs, request.input, info, most)
        vectors = await engine.embed(inputs, "input", request.dimensions, most)
        width = request.dimensions or info.dimensions
        base64 = request.encoding_format == "base64"
        return await in_proportion(len(vectors) * width * JSON_BYTES, _written, name, vectors, base64)

    async def rerank(self, request: RerankRequest) -> bytes:
        """The documents' scores as JSON, the best first.

        Raises:
            RequestError: a field is wrong, or this server's model does not score documents.
            LlgtrtError: a document is refused, too many requests wait, or the embedder failed.
        """
        name, engine = self._find(request.model)
        info = engine.model_info.embedder
        if info is None or not info.ranks:
            raise RequestError(
                "The model here does not score documents: start the server with --embedding-model and a GGUF "
                "file of a reranker (one whose pooling type is rank).",
                "model",
                NOT_SUPPORTED,
            )
        texts = [_document(document, index) for index, document in enumerate(request.documents)]
        most = _most_tokens(request.truncate_prompt_tokens, info)
        scores = await engine.embed([(request.query, text) for text in texts], "documents", None, most)
        return await in_proportion(request.body_bytes, _ranked, name, request, texts, scores)

    def _find(self, asked: str | None) -> tuple[str, AsyncEngine]:
        one = self._models.find(asked)
        return one.model.resolve_embedding(asked), one.engine


def _most_tokens(asked: int | None, info: EmbedderInfo) -> int | None:
    """To how many tokens a longer input is cut."""
    return info.max_tokens if asked == -1 else asked


def _inputs(value: Any, info: EmbedderInfo, most: int | None) -> list[str] | list[list[int]]:
    longest = info.max_tokens if most is None else None
    inputs: Any = prompts_of(value, MAX_INPUTS, info.vocab_size, longest, param="input")
    for index, text in enumerate(inputs):
        if text == "":
            at = f"input[{index}]" if isinstance(value, list) else "input"
            raise RequestError(f"{at} is empty.", at)
    texts: list[str] | list[list[int]] = inputs
    return texts


def _document(document: str | dict[str, Any], index: int) -> str:
    text = document.get("text") if isinstance(document, dict) else document
    at = f"documents[{index}]"
    if not isinstance(text, str):
        raise RequestError(f"{at}.text must be a string.", f"{at}.text")
    if not text:
        raise RequestError(f"{at} is empty.", at)
    return text


def _written(name: str, vectors: Embeddings, base64: bool) -> bytes:
    def entries() -> Iterator[bytes]:
        for index in range(len(vectors)):
            vector = b'"' + b64encode(vectors.raw(index)) + b'"' if base64 else vectors.json(index)
            yield b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vector)

    data = b",".join(entries())
    return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (data, to_json(name), _usage(vectors))


def _ranked(name: str, request: RerankRequest, texts: list[str], scores: Embeddings) -> bytes:
    relevance = [_relevance(scores.scores(index), bool(request.raw_scores)) for index in range(len(texts))]
    order = sorted(range(len(texts)), key=lambda index: -relevance[index])[: request.top_n]
    results = []
    for index in order:
        result: dict[str, Any] = {"index": index, "relevance_score": relevance[index]}
        if request.return_documents is not False:
            result["document"] = {"text": texts[index]}
        results.append(to_json(result))
    head = to_json({"id": new_response_id("rerank"), "object": "list", "model": name})[:-1]
    return head + b',"results":[%b],"usage":%b}' % (b",".join(results), _usage(scores))


def _relevance(scores: list[float], raw: bool) -> float:
    """A model with several scores per document gives probabilities, the first of which is that it fits."""
    first = scores[0]
    if raw or len(scores) > 1:
        return first
    # A form that cannot overflow.
    return 0.5 * (1.0 + math.tanh(0.5 * first))


def _usage(embeddings: Embeddings) -> bytes:
    tokens = embeddings.tokens
    return b'{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
