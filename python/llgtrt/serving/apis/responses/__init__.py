"""OpenAI's Responses API: ``/v1/responses`` and what is below it."""

from __future__ import annotations

from llgtrt.serving.apis.api import Api, GenerationRoute, ObjectRoute
from llgtrt.serving.apis.responses.request import InputTokensRequest, ResponsesRequest
from llgtrt.serving.apis.responses.service import ResponsesService
from llgtrt.serving.apis.responses.store import ResponseStore
from llgtrt.serving.registry import Models

__all__ = ["ResponseStore", "responses_api"]

PATH = "/v1/responses"
ONE = PATH + "/{response_id}"


def responses_api(models: Models, store: ResponseStore, timeout_s: float | None) -> Api:
    """The API over the chat of each model; ``timeout_s`` is of responses in the background."""
    service = ResponsesService(models, store, timeout_s)
    return Api(
        name="responses",
        routes=(
            GenerationRoute(
                PATH,
                "Create a response",
                "A response, or its events.",
                ResponsesRequest,
                service.start,
            ),
            ObjectRoute(
                "POST",
                f"{PATH}/input_tokens",
                "Count the tokens of a response's input",
                "The number of tokens.",
                service.count,
                InputTokensRequest,
            ),
            ObjectRoute("GET", ONE, "Get a stored response", "The response.", service.get, query=("stream",)),
            ObjectRoute("DELETE", ONE, "Delete a stored response", "That it is gone.", service.delete),
            ObjectRoute(
                "POST",
                f"{ONE}/cancel",
                "Cancel a response that is made in the background",
                "The response.",
                service.cancel,
            ),
            ObjectRoute(
                "GET",
                f"{ONE}/input_items",
                "List what a stored response's model was given",
                "A page of the items.",
                service.input_items,
                query=("limit", "order", "after", "include"),
            ),
        ),
    )
