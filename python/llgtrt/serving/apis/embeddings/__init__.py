"""Vectors of texts in OpenAI's form, and documents scored in that of Jina and Cohere."""

from __future__ import annotations

from llgtrt.serving.apis.api import Api, ObjectRoute
from llgtrt.serving.apis.embeddings.request import EmbeddingsRequest, RerankRequest
from llgtrt.serving.apis.embeddings.service import EmbeddingsService
from llgtrt.serving.registry import Models


def embeddings_api(models: Models) -> Api:
    """The API over the embedder of each model."""
    service = EmbeddingsService(models)
    return Api(
        name="embeddings",
        routes=(
            ObjectRoute(
                "POST",
                "/v1/embeddings",
                "Vectors of texts",
                "A list of embeddings, in the order of the inputs.",
                service.embeddings,
                EmbeddingsRequest,
                other_paths=("/embeddings",),
                slow=True,
            ),
            ObjectRoute(
                "POST",
                "/v1/rerank",
                "Order documents by how well they fit a query",
                "Results with index and relevance_score, the best first.",
                service.rerank,
                RerankRequest,
                other_paths=("/rerank", "/v2/rerank"),
                slow=True,
            ),
        ),
    )
