"""For templates that know no tools: the system message describes them, calls are as in Hermes'."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llgtrt.tools.families.hermes import HERMES

FALLBACK = HERMES
"""The format of such models: SmolLM2 was trained on much like it."""


def instruction(tools: Sequence[Mapping[str, Any]]) -> str:
    """What tells the model of its tools."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "You may call one or more functions to assist with the user query.\n"
        "These are the functions, each as one line of JSON:\n"
        f"<tools>\n{lines}\n</tools>\n"
        "For each function call, return a JSON object with the function's name and arguments within "
        "<tool_call></tool_call> tags:\n"
        '<tool_call>\n{"name": "<function-name>", "arguments": <arguments>}\n</tool_call>'
    )


def call(name: str, arguments: Any) -> str:
    """A former call."""
    head = FALLBACK.call_head(name, 0)
    return head + json.dumps(arguments, ensure_ascii=False) + FALLBACK.tail


def result(content: str) -> str:
    """The result of a former call."""
    return f"<tool_response>\n{content}\n</tool_response>"
