"""Anthropic's Messages API: ``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from llgtrt.serving.apis.api import Api, GenerationRoute, ObjectRoute, explained
from llgtrt.serving.apis.messages.encode import MessagesEncoder, error_object
from llgtrt.serving.apis.messages.request import CountTokensRequest, MessagesRequest
from llgtrt.serving.apis.messages.translate import translate
from llgtrt.serving.errors import RequestError
from llgtrt.serving.generation import Generation
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.registry import Models
from llgtrt.serving.sampling import new_response_id

PATH = "/v1/messages"


def messages_api(models: Models) -> Api:
    """The API over the chat of each model."""

    async def start(request: MessagesRequest) -> Generation:
        if request.max_tokens is None:
            raise RequestError("max_tokens: this field is required.", "max_tokens")
        chat = models.find(request.model).chat
        asked, places = await in_proportion(request.body_bytes, translate, request, chat.can_think)
        response_id = new_response_id("msg").replace("-", "_")
        return await explained(places, chat.start(asked, MessagesEncoder, response_id=response_id))

    async def count(request: CountTokensRequest) -> bytes:
        chat = models.find(request.model).chat
        asked, places = await in_proportion(request.body_bytes, translate, request, chat.can_think)
        try:
            tokens = await chat.prompt_tokens(asked)
        except RequestError as error:
            raise places.explain(error) from error
        answer: dict[str, Any] = {"input_tokens": len(tokens)}
        return to_json(answer)

    return Api(
        name="anthropic",
        routes=(
            GenerationRoute(
                PATH,
                "Answer a conversation, as Anthropic's API does",
                "A message, or Anthropic's events.",
                MessagesRequest,
                start,
            ),
            ObjectRoute(
                "POST",
                f"{PATH}/count_tokens",
                "Count the tokens of a conversation",
                "The number of tokens.",
                count,
                CountTokensRequest,
            ),
        ),
        error=error_object,
        error_paths=(PATH,),
    )
