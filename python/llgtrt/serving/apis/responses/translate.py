"""From the terms of OpenAI's Responses API to those of its chat, which the core's use case has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from llgtrt.serving.apis.api import Places
from llgtrt.serving.apis.responses.items import Conversation
from llgtrt.serving.apis.responses.request import (
    InputTokensRequest,
    ResponsesRequest,
    ResponsesTool,
    TextFormat,
)
from llgtrt.serving.apis.responses.store import ResponseStore, stored_json
from llgtrt.serving.apis.shared import chat_request
from llgtrt.serving.errors import NotFoundError, RequestError, quote
from llgtrt.serving.protocol import ChatRequest
from llgtrt.serving.protocol.constraint import json_text
from llgtrt.serving.protocol.constraint_fields import JsonSchemaFormat, ResponseFormat
from llgtrt.serving.protocol.tools import ChatTool, FunctionDefinition

LOGPROBS = "message.output_text.logprobs"
MAX_METADATA_CHARS = 512

PREVIOUS = "previous_response_id"


@dataclass(frozen=True)
class Translated:
    """A request in the terms of the chat.

    Attributes:
        chat: the request.
        places: the client's names of its parts.
        items: what the model is given, in the form in which the API lists it, as a JSON array.
        echo: the members of the response that repeat the request, as JSON without the braces.
        keeps: the response is to be stored.
    """

    chat: ChatRequest
    places: Places
    items: bytes
    echo: bytes
    keeps: bool


def translate(request: InputTokensRequest, store: ResponseStore) -> Translated:
    """The request for the chat.

    Raises:
        RequestError: a part is malformed or not supported.
        NotFoundError: a response or an item that it names is not stored.
    """
    places = Places()
    if request.n not in (None, 1):
        raise RequestError("n: this API gives one answer.", "n")
    for name in ("conversation", "prompt"):
        if getattr(request, name) is not None:
            raise RequestError(f"{name} is not supported here.", name)
    conversation = _conversation(request, store, places)
    places.add("messages", "input")
    fields: dict[str, Any] = {"messages": conversation.messages}
    if request.tools:
        fields["tools"] = [_tool(tool, index, places) for index, tool in enumerate(request.tools)]
    if request.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(request.tool_choice, request.tools or [], places)
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    if request.reasoning is not None and request.reasoning.effort is not None:
        fields["reasoning_effort"] = request.reasoning.effort
        places.add("reasoning_effort", "reasoning.effort")
    fields |= _format(request, places)
    if isinstance(request, ResponsesRequest):
        fields |= _answer_fields(request, places)
    keeps = isinstance(request, ResponsesRequest) and request.store is not False and store.enabled
    # One at a time: a call of the encoder lets no other thread go on.
    items = b"[" + b",".join(map(to_json, conversation.items)) + b"]" if keeps else b""
    echo = json_text(_echo(request, keeps), "tools")[1:-1].encode()
    return Translated(chat_request(request, fields), places, items, echo, keeps)


def _conversation(request: InputTokensRequest, store: ResponseStore, places: Places) -> Conversation:
    conversation = Conversation(places, store.item)
    if request.instructions:
        conversation.instruct(request.instructions)
    if request.previous_response_id is not None:
        entry = store.get(request.previous_response_id)
        if entry is None:
            name = quote(request.previous_response_id)
            raise NotFoundError(
                f"There is no stored response {name}.", PREVIOUS, "previous_response_not_found"
            )
        response = stored_json(entry.response)
        if response["status"] in ("queued", "in_progress"):
            raise RequestError(f"{PREVIOUS}: that response is not complete yet.", PREVIOUS)
        for item in (*stored_json(entry.items), *response["output"]):
            conversation.add(item, PREVIOUS)
    given = request.input
    if isinstance(given, str):
        conversation.add({"type": "message", "role": "user", "content": given}, "input")
    else:
        for index, item in enumerate(given or ()):
            conversation.add(item, f"input[{index}]")
    if not conversation.items:
        raise RequestError("input: this field is required.", "input")
    return conversation


def _tool(tool: ResponsesTool, index: int, places: Places) -> ChatTool:
    at = f"tools[{index}]"
    if tool.type != "function":
        return ChatTool.model_construct(type=tool.type, function=None)
    if not tool.name:
        raise RequestError(f"{at}.name: this field is required.", f"{at}.name")
    places.add(f"{at}.function", at)
    fields: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters}
    if tool.description is not None:
        fields["description"] = tool.description
    function = FunctionDefinition.model_construct(**fields)
    return ChatTool.model_construct(type="function", function=function)


def _tool_choice(choice: Any, given: list[ResponsesTool], places: Places) -> Any:
    """Here names stand beside the type; the chat has them in an object of their own."""
    if not isinstance(choice, dict):
        return choice
    kind = choice.get("type")
    if kind == "function":
        places.add("tool_choice.function.name", "tool_choice.name")
        return {"type": kind, "function": {"name": choice.get("name")}}
    if kind != "allowed_tools":
        if any(tool.type == kind for tool in given):
            return choice
        raise RequestError("tool_choice.type must be 'function' or 'allowed_tools'.", "tool_choice.type")
    tools = choice.get("tools")
    if isinstance(tools, list):
        for index in range(len(tools)):
            at = f"tools[{index}]"
            places.add(f"tool_choice.allowed_tools.{at}.function.name", f"tool_choice.{at}.name")
        tools = [
            {"function": {"name": tool.get("name")}} if isinstance(tool, dict) else tool for tool in tools
        ]
    places.add("tool_choice.allowed_tools", "tool_choice")
    return {"type": kind, "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools}}


def _format(request: InputTokensRequest, places: Places) -> dict[str, Any]:
    form = None if request.text is None else request.text.format
    if form is None:
        return {}
    if request.response_format is not None:
        raise RequestError("text.format and response_format: give one of them.", "text.format")
    places.add("response_format.json_schema", "text.format")
    places.add("response_format", "text.format")
    return {"response_format": _chat_format(form)}


def _chat_format(form: TextFormat) -> ResponseFormat:
    names = [name for name in ResponseFormat.model_fields if getattr(form, name) is not None]
    members = {name: getattr(form, name) for name in names}
    if form.type == "json_schema" and form.json_schema is None:
        if form.schema_ is None:
            raise RequestError("text.format.schema: this field is required.", "text.format.schema")
        del members["schema_"]
        members["json_schema"] = JsonSchemaFormat.model_construct(
            name=form.name, schema_=form.schema_, strict=form.strict
        )
    return ResponseFormat.model_construct(**members)


def _answer_fields(request: ResponsesRequest, places: Places) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.max_output_tokens is not None:
        fields["max_completion_tokens"] = request.max_output_tokens
        places.add("max_completion_tokens", "max_output_tokens")
        places.add("max_tokens", "max_output_tokens")
    if request.top_logprobs is not None or LOGPROBS in (request.include or ()):
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    for name, value in (request.metadata or {}).items():
        if not isinstance(value, str) or len(value) > MAX_METADATA_CHARS:
            at = f"metadata.{name[:60]}"
            raise RequestError(f"{at} must be a text of at most {MAX_METADATA_CHARS} characters.", at)
    if request.background:
        if request.stream:
            raise RequestError("background: not together with stream here.", "background")
        if request.store is False:
            raise RequestError("background needs store, or nobody could ask for the response.", "background")
    return fields


def _echo(request: InputTokensRequest, keeps: bool) -> dict[str, Any]:
    """What a response repeats of its request."""
    reasoning = request.reasoning
    text = request.text
    form: dict[str, Any] = {"type": "text"}
    if text is not None and text.format is not None:
        form = text.format.model_dump(mode="json", by_alias=True, exclude_none=True)
    echo: dict[str, Any] = {
        "background": False,
        "instructions": request.instructions,
        "max_output_tokens": None,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": None if reasoning is None else reasoning.effort, "summary": None},
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": form},
        "tool_choice": "auto" if request.tool_choice is None else request.tool_choice,
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": tool.strict is not False,
            }
            for tool in request.tools or ()
            if tool.type == "function"
        ],
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": request.truncation or "disabled",
    }
    if isinstance(request, ResponsesRequest):
        echo |= {
            "background": bool(request.background),
            "max_output_tokens": request.max_output_tokens,
            "store": keeps,
            "top_logprobs": request.top_logprobs or 0,
        }
    if isinstance(request.user, str):
        echo["user"] = request.user
    return echo
