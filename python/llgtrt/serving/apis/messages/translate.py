"""From Anthropic's terms to those of OpenAI's chat, which the core's use case has."""

from __future__ import annotations

from typing import Any

from llgtrt.serving.apis.api import Places
from llgtrt.serving.apis.messages.request import CountTokensRequest, MessagesTool, OutputFormat
from llgtrt.serving.apis.shared import chat_request
from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol import ChatRequest
from llgtrt.serving.protocol.chat import MAX_BUDGET, ThinkingOptions
from llgtrt.serving.protocol.constraint_fields import JsonSchemaFormat, ResponseFormat
from llgtrt.serving.protocol.tools import ChatTool, FunctionDefinition

MAX_BLOCKS = 65_536
"""Content blocks of a request; each takes a few tokens."""


def translate(request: CountTokensRequest, can_think: bool) -> tuple[ChatRequest, Places]:
    """The request for the chat, and the client's names of its parts.

    Args:
        request: the client's request.
        can_think: the model has thinking tags of its own.

    Raises:
        RequestError: a part is malformed or not supported.
    """
    places = Places()
    if request.n not in (None, 1):
        raise RequestError("n: this API gives one answer.", "n")
    messages = _Messages(places)
    if request.system is not None:
        messages.system(request.system)
    for index, message in enumerate(request.messages):
        messages.add(message, f"messages[{index}]")
    places.add("messages", "messages")
    fields: dict[str, Any] = {"messages": messages.out}
    if messages.prefilled:
        fields["continue_final_message"] = True
        places.add("continue_final_message", f"messages[{len(request.messages) - 1}]")
    if request.stop_sequences is not None:
        fields["stop"] = [*(request.stop or ()), *request.stop_sequences]
        places.add("stop", "stop_sequences")
    tools = [_tool(tool, index, places) for index, tool in enumerate(request.tools or ())]
    if tools:
        fields["tools"] = tools
    fields |= _tool_choice(request, places)
    fields |= _output(request, places)
    constrained = "response_format" in fields or any(tool.type == "function" for tool in tools)
    fields |= _thinking(request, can_think or constrained)
    return chat_request(request, fields), places


class _Messages:
    """Collects messages of the chat.

    Attributes:
        out: the messages.
        prefilled: the last one is the beginning of the answer.
    """

    def __init__(self, places: Places) -> None:
        self.out: list[dict[str, Any]] = []
        self.prefilled = False
        self._places = places
        self._blocks = 0

    def system(self, system: str | list[Any]) -> None:
        """The system prompt."""
        texts = [system] if isinstance(system, str) else self._texts(system, "system")
        # Claude Code sends an empty one; a template would print its header.
        if any(texts):
            self._append({"role": "system", "content": "\n".join(texts)}, "system")

    def add(self, message: dict[str, Any], at: str) -> None:
        """One message of the client's, which may be several of the chat's."""
        role, content = message.get("role"), message.get("content")
        self.prefilled = False
        if role not in ("user", "assistant", "system"):
            raise RequestError(f"{at}.role must be 'user' or 'assistant'.", f"{at}.role")
        if isinstance(content, str):
            self._append({"role": role, "content": content}, at)
            self.prefilled = role == "assistant" and bool(content)
            return
        if not isinstance(content, list):
            raise RequestError(f"{at}.content must be a text or an array of blocks.", f"{at}.content")
        if role == "assistant":
            self._assistant(content, at)
        elif role == "system":
            self._append({"role": role, "content": "\n".join(self._texts(content, f"{at}.content"))}, at)
        else:
            self._user(content, at)

    def _user(self, blocks: list[Any], at: str) -> None:
        texts: list[str] = []
        for index, block in enumerate(blocks):
            where = f"{at}.content[{index}]"
            if self._kind(block, where) != "tool_result":
                texts.append(self._text(block, where))
                continue
            self._said(texts, at)
            texts = []
            result = self._result(block, where)
            call = _string(block, "tool_use_id", where)
            self._append({"role": "tool", "tool_call_id": call, "content": result}, where)
        if texts or not blocks:
            self._said(texts or [""], at)

    def _said(self, texts: list[str], at: str) -> None:
        if texts:
            self._append({"role": "user", "content": "\n".join(texts)}, at)

    def _result(self, block: dict[str, Any], where: str) -> str:
        content = block.get("content")
        if content is None:
            content = ""
        elif isinstance(content, list):
            content = "\n".join(self._texts(content, f"{where}.content"))
        elif not isinstance(content, str):
            raise RequestError(f"{where}.content must be a text or an array of blocks.", f"{where}.content")
        return f"Error: {content}" if block.get("is_error") is True else content

    def _assistant(self, blocks: list[Any], at: str) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[dict[str, Any]] = []
        for index, block in enumerate(blocks):
            where = f"{at}.content[{index}]"
            kind = self._kind(block, where)
            if kind == "thinking":
                thoughts.append(_string(block, "thinking", where))
            elif kind == "tool_use":
                calls.append(_call(block, where))
            elif kind != "redacted_thinking":  # Nobody but its maker can read that.
                texts.append(self._text(block, where))
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts else None}
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        self._append(message, at)
        self.prefilled = bool(message["content"]) and not calls

    def _texts(self, blocks: list[Any], at: str) -> list[str]:
        texts = []
        for index, block in enumerate(blocks):
            self._kind(block, f"{at}[{index}]")
            texts.append(self._text(block, f"{at}[{index}]"))
        return texts

    def _kind(self, block: Any, where: str) -> str:
        self._blocks += 1
        if self._blocks > MAX_BLOCKS:
            raise RequestError(f"The messages may hold at most {MAX_BLOCKS} blocks.", where)
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise RequestError(f"{where} must be an object with a type.", where)
        return kind

    def _text(self, block: dict[str, Any], where: str) -> str:
        if block["type"] == "document":
            return self._document(block, where)
        if block["type"] != "text":
            kind = quote(block["type"], 40)
            raise RequestError(f"{where}: content of type {kind} is not supported here.", where)
        return _string(block, "text", where)

    def _document(self, block: dict[str, Any], where: str) -> str:
        """A document of text, with its title and what is said about it, where it stands."""
        at = f"{where}.source"
        source = block.get("source")
        if not isinstance(source, dict):
            raise RequestError(f"{at} must be an object.", at)
        content = source.get("content")
        if source.get("type") == "text":
            text = _string(source, "data", at)
        elif source.get("type") == "content" and isinstance(content, str):
            text = content
        elif source.get("type") == "content" and isinstance(content, list):
            text = "\n".join(self._texts(content, f"{at}.content"))
        else:
            raise RequestError(f"{at}: only documents of text are supported here.", at)
        said = [_string(block, name, where) for name in ("title", "context") if block.get(name) is not None]
        return "\n".join([*said, text])

    def _append(self, message: dict[str, Any], at: str) -> None:
        self._places.add(f"messages[{len(self.out)}]", at)
        self.out.append(message)


def _string(block: dict[str, Any], member: str, where: str) -> str:
    value = block.get(member)
    if not isinstance(value, str):
        raise RequestError(f"{where}.{member} must be a text.", f"{where}.{member}")
    return value


def _call(block: dict[str, Any], where: str) -> dict[str, Any]:
    given = block.get("input")
    if not isinstance(given, dict):
        raise RequestError(f"{where}.input must be an object.", f"{where}.input")
    function = {"name": _string(block, "name", where), "arguments": given}
    return {"id": _string(block, "id", where), "type": "function", "function": function}


def _tool(tool: MessagesTool, index: int, places: Places) -> ChatTool:
    at = f"tools[{index}]"
    if tool.type not in (None, "custom"):
        return ChatTool.model_construct(type=tool.type, function=None)
    if not tool.name:
        raise RequestError(f"{at}.name: this field is required.", f"{at}.name")
    places.add(f"{at}.function.parameters", f"{at}.input_schema")
    places.add(f"{at}.function", at)
    fields: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        fields["description"] = tool.description
    function = FunctionDefinition.model_construct(**fields)
    return ChatTool.model_construct(type="function", function=function)


def _tool_choice(request: CountTokensRequest, places: Places) -> dict[str, Any]:
    choice = request.tool_choice
    if choice is None:
        return {}
    fields: dict[str, Any] = {}
    if choice.disable_parallel_tool_use is not None:
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    if choice.type == "tool":
        if choice.name is None:
            raise RequestError("tool_choice.name: the type 'tool' needs a name.", "tool_choice.name")
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        places.add("tool_choice.function.name", "tool_choice.name")
    else:
        fields["tool_choice"] = {"auto": "auto", "any": "required", "none": "none"}[choice.type]
    return fields


def _output(request: CountTokensRequest, places: Places) -> dict[str, Any]:
    config = request.output_config
    fields: dict[str, Any] = {}
    if config is not None and config.effort is not None:
        fields["reasoning_effort"] = config.effort
    given: OutputFormat | None = None if config is None else config.format
    at = "output_config.format"
    if given is None:
        given, at = request.output_format, "output_format"
    elif request.output_format is not None:
        raise RequestError(
            "output_format is the older name of output_config.format: give one.", "output_format"
        )
    if given is not None:
        if request.response_format is not None:
            raise RequestError(f"{at} and response_format: give one of them.", at)
        schema = JsonSchemaFormat.model_construct(name="answer", schema_=given.schema_)
        fields["response_format"] = ResponseFormat.model_construct(type="json_schema", json_schema=schema)
        places.add("response_format.json_schema", at)
    return fields


def _thinking(request: CountTokensRequest, can_think: bool) -> dict[str, Any]:
    """Without the field there is none: a client that does not ask for it does not expect its blocks."""
    given = request.thinking
    if given is None:
        return {"thinking": ThinkingOptions.model_construct(type="disabled")}
    budget = None
    if given.type == "enabled" and given.budget_tokens is not None and can_think:
        budget = min(given.budget_tokens, MAX_BUDGET)
    return {"thinking": ThinkingOptions.model_construct(type=given.type, budget_tokens=budget)}
