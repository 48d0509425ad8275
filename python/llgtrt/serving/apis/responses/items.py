"""The items of a conversation in OpenAI's Responses API: to messages of the chat, and in the form stored."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from llgtrt.serving.apis.api import Places
from llgtrt.serving.errors import NotFoundError, RequestError, quote

MAX_ITEMS = 16_384
"""Items of a conversation, stored ones included; each takes a few tokens."""

MAX_PARTS = 65_536
"""Content parts of a request."""

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Content parts that are text, and the member that holds it."""

FindItem = Callable[[str], dict[str, Any] | None]
"""A stored item by its id."""


def new_id(kind: str) -> str:
    """An id as OpenAI's look, such as ``msg_...``."""
    return f"{kind}_{secrets.token_hex(16)}"


class Conversation:
    """Collects items.

    Attributes:
        messages: what they are for the chat.
        items: the same items with ids, in the form in which the API lists them.
    """

    def __init__(self, places: Places, find: FindItem) -> None:
        self.messages: list[dict[str, Any]] = []
        self.items: list[dict[str, Any]] = []
        self._places = places
        self._find = find
        self._parts = 0
        self._answer: dict[str, Any] | None = None
        """The assistant's message that further items belong to."""

    def instruct(self, text: str) -> None:
        """A system message before all others."""
        self._message("system", text, "instructions")

    def add(self, item: Any, at: str) -> None:
        """The next item.

        Raises:
            RequestError: it is malformed or not supported.
            NotFoundError: it refers to an item that is not stored.
        """
        if len(self.items) >= MAX_ITEMS:
            raise RequestError(f"The conversation may hold at most {MAX_ITEMS} items.", at)
        if not isinstance(item, dict):
            raise RequestError(f"{at} must be an object.", at)
        kind = item.get("type")
        if kind is None:
            kind = "message" if "role" in item else "item_reference" if "id" in item else None
        if kind == "message":
            self._said(item, at)
        elif kind == "function_call":
            self._call(item, at)
        elif kind == "function_call_output":
            self._result(item, at)
        elif kind == "reasoning":
            self._thought(item, at)
        elif kind == "item_reference":
            name = _string(item, "id", at)
            found = self._find(name)
            if found is None:
                raise NotFoundError(f"{at}.id: there is no stored item {quote(name)}.", f"{at}.id")
            self.add(found, at)
        elif isinstance(kind, str):
            raise RequestError(f"{at}: items of type {quote(kind, 40)} are not supported here.", at)
        else:
            raise RequestError(f"{at}.type must be a text.", f"{at}.type")

    def _said(self, item: dict[str, Any], at: str) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in ("user", "assistant", "system", "developer"):
            message = "must be 'user', 'assistant', 'system' or 'developer'"
            raise RequestError(f"{at}.role {message}.", f"{at}.role")
        if isinstance(content, str):
            texts = [content]
        elif isinstance(content, list):
            texts = [self._text(part, f"{at}.content[{index}]") for index, part in enumerate(content)]
        else:
            raise RequestError(f"{at}.content must be a text or an array of parts.", f"{at}.content")
        text = "\n".join(texts)
        if role == "assistant":
            answer = self._answering(at)
            answer["content"] = f"{answer['content']}\n{text}" if answer["content"] else text
            parts = [{"type": "output_text", "text": one, "annotations": [], "logprobs": []} for one in texts]
        else:
            self._message(role, text, at)
            parts = [{"type": "input_text", "text": one} for one in texts]
        self._keep(item, "msg", {"type": "message", "role": role, "content": parts})

    def _call(self, item: dict[str, Any], at: str) -> None:
        name, arguments = _string(item, "name", at), _string(item, "arguments", at)
        call_id = _string(item, "call_id", at)
        calls = self._answering(at).setdefault("tool_calls", [])
        inner = f"messages[{len(self.messages) - 1}].tool_calls[{len(calls)}]"
        self._places.pairs.insert(0, (f"{inner}.function", at))
        calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
        members = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        self._keep(item, "fc", members)

    def _result(self, item: dict[str, Any], at: str) -> None:
        call_id, output = _string(item, "call_id", at), item.get("output")
        if isinstance(output, list):
            text = "\n".join(self._text(part, f"{at}.output[{index}]") for index, part in enumerate(output))
        elif isinstance(output, str):
            text = output
        else:
            raise RequestError(f"{at}.output must be a text or an array of parts.", f"{at}.output")
        self._append({"role": "tool", "tool_call_id": call_id, "content": text}, at)
        self._keep(item, "fco", {"type": "function_call_output", "call_id": call_id, "output": text})

    def _thought(self, item: dict[str, Any], at: str) -> None:
        """What cannot be read of it, such as encrypted content, is left out."""
        texts: list[str] = []
        for member in ("content", "summary"):
            parts = item.get(member) or []
            if not isinstance(parts, list):
                raise RequestError(f"{at}.{member} must be an array of parts.", f"{at}.{member}")
            if not texts:
                texts = [
                    self._part(part, f"{at}.{member}[{index}]", "text") for index, part in enumerate(parts)
                ]
        if texts:
            answer = self._answering(at)
            answer["reasoning_content"] = "\n".join(
                [*filter(None, [answer.get("reasoning_content")]), *texts]
            )
        content = [{"type": "reasoning_text", "text": text} for text in texts]
        self._keep(item, "rs", {"type": "reasoning", "summary": [], "content": content})

    def _text(self, part: Any, where: str) -> str:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise RequestError(f"{where} must be an object with a type.", where)
        if kind not in _TEXTS:
            raise RequestError(f"{where}: content of type {quote(kind, 40)} is not supported here.", where)
        return self._part(part, where, _TEXTS[kind])

    def _part(self, part: Any, where: str, member: str) -> str:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise RequestError(f"The items may hold at most {MAX_PARTS} parts.", where)
        if not isinstance(part, dict):
            raise RequestError(f"{where} must be an object.", where)
        return _string(part, member, where)

    def _message(self, role: str, text: str, at: str) -> None:
        """Instructions at the beginning are one message: many templates take no second one."""
        first = self.messages[0] if self.messages else None
        system = ("system", "developer")
        if len(self.messages) == 1 and first is not None and first["role"] in system and role in system:
            first["content"] = f"{first['content']}\n\n{text}"
            return
        self._append({"role": role, "content": text}, at)

    def _answering(self, at: str) -> dict[str, Any]:
        """The assistant's message that an item belongs to. Thinking, text and calls of one turn are one."""
        if self._answer is None:
            answer: dict[str, Any] = {"role": "assistant", "content": None}
            self._append(answer, at)
            self._answer = answer
        return self._answer

    def _append(self, message: dict[str, Any], at: str) -> None:
        self._answer = None
        self._places.add(f"messages[{len(self.messages)}]", at)
        self.messages.append(message)

    def _keep(self, item: dict[str, Any], kind: str, members: dict[str, Any]) -> None:
        given = item.get("id")
        name = given if isinstance(given, str) and given else new_id(kind)
        self.items.append({"id": name, **members, "status": "completed"})


def _string(item: dict[str, Any], member: str, at: str) -> str:
    value = item.get(member)
    if not isinstance(value, str):
        raise RequestError(f"{at}.{member} must be a text.", f"{at}.{member}")
    return value
