"""What a template expects of its messages, found by rendering small conversations with it.

Templates do not say which form of content, of tool arguments or of an absent content they can handle; reading
their source for signs of it is guesswork, trying is not.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

Render = Callable[..., "str | None"]
"""The prompt for some messages and, maybe, tools and documents; ``None`` if the template fails on them."""

_NEEDLE = "needle1f3a"


@dataclass(frozen=True)
class TemplateStyle:
    """The forms of messages that one template handles."""

    content_parts: bool
    """Content is a list of parts, not a text."""

    text_arguments: bool
    """Arguments of tool calls are JSON text, not an object."""

    null_content: bool
    """The content of an assistant message that only calls tools is null, not an empty text."""

    system_role: bool
    """There may be a system message."""

    tools: bool
    """The template shows definitions of tools."""

    documents: bool
    """The template shows documents."""

    tool_calls: bool
    """The template shows calls of tools."""

    developer_role: bool
    """The template knows developer messages; otherwise they are system messages."""


def find_style(render: Render, constants: Set[str]) -> TemplateStyle:
    """Tries a template out. ``constants`` are the texts that its expressions compare with or print."""
    text_content = _shows(render([_user(_NEEDLE)]), _NEEDLE)
    parts = [{"type": "text", "text": _NEEDLE}]
    # A template that prints the list as it is shows the needle too, between Python's braces.
    part_content = render([_user(parts)])
    content_parts = not text_content and _shows(part_content, _NEEDLE) and "{'" not in (part_content or "")

    def form(text: str) -> Any:
        return [{"type": "text", "text": text}] if content_parts else text

    def tool_call(arguments: Any, content: Any) -> str | None:
        call = {
            "id": "call00001",
            "type": "function",
            "function": {"name": "look_up", "arguments": arguments},
        }
        return render(
            [_user(form("Hello")), {"role": "assistant", "content": content, "tool_calls": [call]}],
        )

    as_object = _shows_arguments(tool_call({_NEEDLE: "v"}, form("")))
    as_text = _shows_arguments(tool_call(f'{{"{_NEEDLE}": "v"}}', form("")))
    text_arguments = as_text and not as_object
    arguments: Any = f'{{"{_NEEDLE}": "v"}}' if text_arguments else {_NEEDLE: "v"}
    with_null = tool_call(arguments, None)
    null_content = _shows_arguments(with_null) and "None" not in (with_null or "")

    definition = {
        "type": "function",
        "function": {"name": _NEEDLE, "description": "d", "parameters": {"type": "object", "properties": {}}},
    }
    with_tools = render([_user(form("Hello"))], [definition])
    # Templates read different members of a document, or all of them.
    members = ("doc_id", "id", "title", "text", "content", "contents")
    with_documents = render([_user(form("Hello"))], None, [dict.fromkeys(members, _NEEDLE)])
    system = render([{"role": "system", "content": form(_NEEDLE)}, _user(form("Hello"))])
    return TemplateStyle(
        content_parts=content_parts,
        text_arguments=text_arguments,
        null_content=null_content,
        system_role=_shows(system, _NEEDLE),
        tools=_shows(with_tools, _NEEDLE),
        documents=_shows(with_documents, _NEEDLE),
        tool_calls=as_object or as_text or null_content or _shows(tool_call(arguments, form("")), _NEEDLE),
        # Who prints every role prints this one too, though its model may never have seen it.
        developer_role="developer" in constants,
    )


def prints_role(render: Render, style: TemplateStyle, role: str) -> bool:
    """Whether a template shows a message of this role, and whose it is."""
    content = [{"type": "text", "text": _NEEDLE}] if style.content_parts else _NEEDLE
    hello = [{"type": "text", "text": "Hello"}] if style.content_parts else "Hello"
    without = render([_user(hello)])
    shown = render([_user(hello), {"role": role, "content": content}])
    if without is None or shown is None:
        return False
    # Some templates begin the names of roles with a capital.
    return _NEEDLE in shown and shown.lower().count(role.lower()) > without.lower().count(role.lower())


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _shows(prompt: str | None, needle: str) -> bool:
    return prompt is not None and needle in prompt


def _shows_arguments(prompt: str | None) -> bool:
    """Whether the arguments are there as JSON: neither Python's form of an object nor a quoted text."""
    return (
        prompt is not None
        and _NEEDLE in prompt
        and not (f"'{_NEEDLE}'" in prompt or f'\\"{_NEEDLE}' in prompt)
    )
