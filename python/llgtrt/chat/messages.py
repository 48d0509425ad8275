"""Checks messages of the OpenAI API and brings them into the plain form that templates are given."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llgtrt.patient_json import parse_json, pieces_of

from .errors import ChatError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_ROLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
"""What a role of some model may be called: it stands in the prompt as it is."""

REASONING_MEMBERS = ("reasoning_content", "thinking", "reasoning")
"""What clients call the thoughts of an earlier answer; the first that is there counts."""

_TEXT_PARTS = {"text": "text", "refusal": "refusal"}
"""Content parts that are text, and the member that holds it."""


def plain_messages(
    messages: Sequence[Mapping[str, Any]], further_role: Callable[[str], bool] = lambda role: False
) -> list[dict[str, Any]]:
    """Messages whose content is one text (or ``None``, for an assistant that only called tools).

    The parts of a content are joined by line breaks. Arguments of tool calls become objects. Members that no
    template knows are left out.

    Args:
        messages: as in the OpenAI API.
        further_role: whether a role that this API does not know means something to the model.

    Raises:
        ChatError: something is missing, has the wrong type or is not supported; ``param`` says where.
    """
    if not messages:
        raise ChatError("messages must hold at least one message")
    return [
        _plain_message(message, f"messages[{index}]", further_role) for index, message in enumerate(messages)
    ]


def _plain_message(
    message: Mapping[str, Any], where: str, further_role: Callable[[str], bool]
) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ChatError(f"{where} must be an object", where)
    role = message.get("role")
    is_name = isinstance(role, str) and _ROLE_NAME.fullmatch(role) is not None
    if role not in ROLES and not (is_name and further_role(str(role))):
        raise ChatError(f"{where}.role must be one of {', '.join(ROLES)}", f"{where}.role")
    plain: dict[str, Any] = {"role": role, "content": _content(message.get("content"), f"{where}.content")}
    if plain["content"] is None and role not in ("assistant", "tool"):
        raise ChatError(f"{where}.content must be a text or a list of parts", f"{where}.content")
    if role == "function":
        # The older name of a tool's result; no template knows it.
        role = plain["role"] = "tool"
    for member in ("name", "tool_call_id"):
        if message.get(member) is not None:
            plain[member] = _text(message[member], f"{where}.{member}")
    for member in REASONING_MEMBERS:
        if message.get(member) is not None:
            # Templates read the first two of the names: that of gpt-oss the second.
            thoughts = _text(message[member], f"{where}.{member}")
            plain["reasoning_content"] = plain["thinking"] = thoughts
            break
    at = f"{where}.function_call"
    if message.get("function_call") and not message.get("tool_calls"):
        if role != "assistant":
            raise ChatError(f"{at}: only assistant messages have it", at)
        plain["tool_calls"] = [_function(message["function_call"], at)]
    elif message.get("tool_calls"):
        if role != "assistant":
            raise ChatError(f"{where}.tool_calls: only assistant messages have them", f"{where}.tool_calls")
        plain["tool_calls"] = _tool_calls(message["tool_calls"], f"{where}.tool_calls")
    elif role == "assistant" and plain["content"] is None:
        # Some clients send back an empty answer this way.
        plain["content"] = ""
    if role == "tool" and plain["content"] is None:
        plain["content"] = ""
    return plain


def _content(content: Any, where: str) -> str | None:
    if content is None:
        return None
    if isinstance(content, str):
        return _text(content, where)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise ChatError(f"{where} must be a text or a list of parts", where)
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, Mapping):
        raise ChatError(f"{where} must be an object", where)
    kind = part.get("type")
    if not isinstance(kind, str):
        raise ChatError(f"{where}.type must be a text", f"{where}.type")
    if kind not in _TEXT_PARTS:
        raise ChatError(f"{where}: content of type {kind[:40]!r} is not supported by this model", where)
    member = _TEXT_PARTS[kind]
    return _text(part.get(member), f"{where}.{member}")


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise ChatError(f"{where} must be a list", where)
    return [_tool_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    plain = _function(function, f"{where}.function")
    if call.get("id") is not None:
        plain["id"] = _text(call["id"], f"{where}.id")
    return plain


def _function(function: Any, where: str) -> dict[str, Any]:
    if not isinstance(function, Mapping):
        raise ChatError(f"{where} must be an object", where)
    return {
        "type": "function",
        "function": {
            "name": _text(function.get("name"), f"{where}.name"),
            "arguments": _arguments(function.get("arguments"), f"{where}.arguments"),
        },
    }


def _arguments(arguments: Any, where: str) -> dict[str, Any]:
    """Clients send arguments as JSON text, as they got them."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, str):
        _text(arguments, where)
        try:
            # Not the standard library's: it takes half of a surrogate pair, which no prompt can hold.
            arguments = parse_json(arguments)
        except ValueError as error:
            raise ChatError(f"{where} must be a JSON object as text", where) from error
    if not isinstance(arguments, dict):
        raise ChatError(f"{where} must be a JSON object as text", where)
    return arguments


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ChatError(f"{where} must be a text", where)
    # Encoding is many times faster than a search, and the search would keep all other threads waiting.
    if not value.isascii():
        try:
            # In one go a long text would keep them waiting as well.
            for piece in pieces_of(value):
                piece.encode()
        except UnicodeEncodeError:
            raise ChatError(
                f"{where} holds half of a surrogate pair, which is not a character", where
            ) from None
    return value
