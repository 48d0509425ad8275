"""Several answers from one prompt: a Truss in the form of Baseten's fan-out example.

The body is that of a chat request with `suffix_messages` beside `messages`: a list of tasks, each a list of
messages that continue the conversation. The first task is answered alone, so that the KV cache of the common
part exists when the others begin, and all others together.
"""

import asyncio
from typing import Any

from fastapi import HTTPException, Request
from starlette.responses import JSONResponse

MOST_TASKS = 256


class Model:
    def __init__(self, trt_llm, **kwargs) -> None:
        self._engine = trt_llm["engine"]
        self._secrets = kwargs["secrets"]

    async def predict(self, model_input: dict[str, Any], request: Request) -> Any:
        tasks = check(model_input)

        async def answer(task: list[dict[str, str]]) -> Any:
            body = {name: value for name, value in model_input.items() if name != "suffix_messages"}
            body["messages"] = [*model_input["messages"], *task]
            response = await self._engine.chat_completions(request=request, model_input=body)
            if hasattr(response, "body_iterator"):
                raise HTTPException(status_code=400, detail="The engine streams, which was not asked for.")
            return response

        first = await answer(tasks[0])
        others = await asyncio.gather(*(answer(task) for task in tasks[1:]))
        return JSONResponse(content=merged(first, others).model_dump())

    async def chat_completions(self, model_input: dict[str, Any], request: Request) -> Any:
        # /v1/chat/completions and /v1/models/NAME:predict are the same.
        return await self.predict(model_input, request)


def check(model_input: Any) -> list[list[dict[str, str]]]:
    """The tasks of a request."""
    if not isinstance(model_input, dict) or not isinstance(model_input.get("messages"), list):
        raise HTTPException(status_code=400, detail='The body must be an object with "messages".')
    if model_input.get("stream") or model_input.get("n", 1) != 1:
        raise HTTPException(status_code=400, detail="Neither stream nor n goes with suffix_messages.")
    tasks = model_input.get("suffix_messages")
    if not isinstance(tasks, list) or not all(isinstance(task, list) for task in tasks):
        raise HTTPException(status_code=400, detail='"suffix_messages" must be a list of lists of messages.')
    if not 1 <= len(tasks) <= MOST_TASKS:
        raise HTTPException(status_code=400, detail=f'"suffix_messages" takes 1 to {MOST_TASKS} tasks.')
    return tasks


def merged(base: Any, others: list[Any]) -> Any:
    """One response with a choice for each task, and the counts of all."""
    for index, response in enumerate(others, start=1):
        choice = response.choices[0]
        choice.index = index
        base.choices.append(choice)
        base.usage.prompt_tokens += response.usage.prompt_tokens
        base.usage.completion_tokens += response.usage.completion_tokens
        base.usage.total_tokens += response.usage.total_tokens
        base.usage.prompt_tokens_details.cached_tokens += response.usage.prompt_tokens_details.cached_tokens
    return base
