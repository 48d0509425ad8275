"""What the engine gives to a model: OpenAI's response objects, with attributes that can be set.

Members that are not declared are kept, as attributes too. ``model_dump()`` gives what the server's own route
would answer.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class EngineObject(BaseModel):
    """A part of a response."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Members that nobody set are for reading only."""
        members: dict[str, Any] = handler(self)
        return {name: value for name, value in members.items() if name in self.model_fields_set}


class PromptTokensDetails(EngineObject):
    """What of the prompt was in the KV cache."""

    cached_tokens: int = 0


class Usage(EngineObject):
    """Token counts."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | None = None


class FunctionCall(EngineObject):
    """Name and arguments (JSON) of a call."""

    name: str = ""
    arguments: str = ""


class ToolCall(EngineObject):
    """A call of a tool."""

    id: str = ""
    type: str = "function"
    function: FunctionCall | None = None


class Message(EngineObject):
    """The answer of a conversation."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = None


class ChatChoice(EngineObject):
    """One answer of a conversation."""

    index: int = 0
    message: Message
    logprobs: Any = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class CompletionChoice(EngineObject):
    """One continuation of a text."""

    index: int = 0
    text: str = ""
    logprobs: Any = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class ChatCompletion(EngineObject):
    """The response of ``engine.chat_completions`` that is not streamed."""

    id: str = ""
    object: str = "chat.completion"
    created: int = 0
    model: str = ""
    choices: list[ChatChoice]
    usage: Usage


class Completion(EngineObject):
    """The response of ``engine.completions`` that is not streamed."""

    id: str = ""
    object: str = "text_completion"
    created: int = 0
    model: str = ""
    choices: list[CompletionChoice]
    usage: Usage
