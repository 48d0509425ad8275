"""Renders every conversation with every template here by stock transformers, into ``goldens.json``.

With an interpreter that has ``transformers`` (no torch): ``python tests/data/chat_templates/render.py``.
"""

import copy
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city, in °C <or °F>.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": []},
        },
    },
]
CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}},
}
SYSTEM = {"role": "system", "content": "You are terse."}
QUESTION = {"role": "user", "content": "What is 2+2?"}
ARGUMENTS = json.dumps(CALL["function"]["arguments"], ensure_ascii=False)
ANSWER = {"role": "assistant", "content": "4."}
UNUSUAL = "  Leading blanks, 'quotes' & <tags> {{ braces }} {% raw %},\n\n\tumlauts äöü, 日本語, 👩‍🚀\r\nend"

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "question": {"messages": [QUESTION], "add_generation_prompt": True},
    "system": {"messages": [SYSTEM, QUESTION], "add_generation_prompt": True},
    "turns": {
        "messages": [SYSTEM, QUESTION, ANSWER, {"role": "user", "content": "And 3+3?"}],
        "add_generation_prompt": True,
    },
    "unusual_text": {
        "messages": [
            {"role": "user", "content": UNUSUAL},
            {"role": "assistant", "content": UNUSUAL},
            QUESTION,
        ],
        "add_generation_prompt": True,
    },
    "thoughts": {
        "messages": [QUESTION, {**ANSWER, "reasoning": "Two and two."}, QUESTION],
        "add_generation_prompt": True,
    },
    "thoughts_at_the_end": {
        "messages": [QUESTION, {**ANSWER, "reasoning_content": "Two and two."}],
        "add_generation_prompt": False,
    },
    "without_a_generation_prompt": {"messages": [QUESTION, ANSWER], "add_generation_prompt": False},
    "continued": {
        "messages": [QUESTION, {"role": "assistant", "content": "The sum is"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "tools": {"messages": [SYSTEM, QUESTION], "tools": TOOLS, "add_generation_prompt": True},
    "calls": {
        "messages": [
            {"role": "user", "content": "The weather in Zürich?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call00001", "content": '{"sky": "sunny"}'},
        ],
        "add_generation_prompt": True,
    },
}
"""The arguments of ``apply_chat_template``, by name."""


def parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Contents as lists of parts."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def with_text_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments of calls as JSON text."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return messages


def shows_calls(text: str) -> bool:
    """Whether the call is there, its arguments as JSON or one by one; the question names the city too."""
    return ARGUMENTS in text or ("get_weather" in text and text.count("Zürich") > 1)


def render(template: str, conversation: dict[str, Any]) -> str | None:
    """The prompt; ``None`` if the template refuses the conversation in every form that clients may send."""
    from transformers.utils.chat_template_utils import render_jinja_template

    arguments = dict(conversation)
    messages = arguments.pop("messages")
    other = None
    for form in (lambda given: given, with_text_arguments, parts):
        # In the form that the template was written for, which a user of transformers has to know.
        try:
            rendered = render_jinja_template(
                conversations=[form(messages)], chat_template=template, **arguments, **TOKENS
            )
        except Exception:  # A template is a program and may raise anything.
            continue
        text = rendered[0][0] if isinstance(rendered, tuple) else rendered[0]
        wanted = ARGUMENTS if any("tool_calls" in message for message in messages) else QUESTION["content"]
        if wanted in text:
            return text
        other = other or text
    return other


def main() -> None:
    """Writes the file."""
    goldens: dict[str, dict[str, str | None]] = {}
    for path in sorted(FOLDER.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        rendered = {name: render(template, one) for name, one in CONVERSATIONS.items()}
        # Where a template knows nothing of tools, what is made of them is this server's own.
        if rendered["tools"] == rendered["system"]:
            del rendered["tools"]
        if not shows_calls(rendered["calls"] or ""):
            del rendered["calls"]
        goldens[path.stem] = rendered
    content = {"tokens": TOKENS, "conversations": CONVERSATIONS, "goldens": goldens}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    (FOLDER / "goldens.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
