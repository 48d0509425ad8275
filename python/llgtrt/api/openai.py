"""OpenAI's routes: chat, completions and models; without /v1 too, for clients whose address lacks it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from llgtrt.api.answering import answer_chat, deliver
from llgtrt.api.body import read_request, request_body
from llgtrt.api.responses import errors, generation, json_object
from llgtrt.api.routing import new_router
from llgtrt.api.services import services_of
from llgtrt.serving import ChatRequest, CompletionRequest

router = new_router()

MODEL_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}


@router.post("/chat/completions", include_in_schema=False, response_model=None)
@router.post(
    "/v1/chat/completions",
    tags=["openai"],
    summary="Answer a conversation",
    openapi_extra=request_body("ChatRequest"),
    responses=generation("A chat.completion, or chat.completion.chunk events and [DONE]."),
    response_model=None,
)
async def chat_completions(request: Request) -> Response:
    """Streams server-sent events where the body says `stream: true`, else answers with one object."""
    services = services_of(request)
    chat = await read_request(request, services.server, ChatRequest)
    return await answer_chat(request, services.models.find(chat.model).chat.start(chat))


@router.post("/completions", include_in_schema=False, response_model=None)
@router.post(
    "/v1/completions",
    tags=["openai"],
    summary="Continue a text",
    openapi_extra=request_body("CompletionRequest"),
    responses=generation("A text_completion, or events with its parts and [DONE]."),
    response_model=None,
)
async def completions(request: Request) -> Response:
    """Streams server-sent events where the body says `stream: true`, else answers with one object."""
    services = services_of(request)
    completion = await read_request(request, services.server, CompletionRequest)
    return deliver(request, await services.models.find(completion.model).completions.start(completion))


@router.get("/models", include_in_schema=False, response_model=None)
@router.head("/v1/models", include_in_schema=False)
@router.get(
    "/v1/models",
    tags=["openai"],
    summary="List the models",
    responses=json_object("The list."),
    response_model=None,
)
async def list_models(request: Request) -> Response:
    """OpenAI's list of models: those that are loaded, under each of their names, and their adapters."""
    listed = [entry for one in services_of(request).models for entry in one.model.objects()]
    return JSONResponse({"object": "list", "data": listed})


@router.head("/v1/models/{name:path}", include_in_schema=False)
@router.get(
    "/v1/models/{name:path}",
    tags=["openai"],
    summary="Describe a model",
    responses={**json_object("The model."), **errors(404)},
    # Declared by hand: for a parameter of its own FastAPI adds a 422 that never comes.
    openapi_extra={"parameters": [MODEL_NAME]},
    response_model=None,
)
async def get_model(request: Request) -> Response:
    """One model; a name that is not served is 404."""
    name = request.path_params["name"]
    model = services_of(request).models.find(name).model
    listed = {one["id"]: one for one in model.objects()}
    return JSONResponse(listed.get(name) or listed.get(model.resolve(name)) or model.object())
