"""For templates that know no tools: the system message describes them and the format of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llgtrt.patient_json import json_of
from llgtrt.tools.families.hermes import HERMES
from llgtrt.tools.format import ToolFormat
from llgtrt.tools.json_arguments import JSON_ARGUMENTS

FALLBACK = HERMES
"""The format of models whose template shows none: SmolLM2 was trained on much like it."""


def instruction(tools: Sequence[Mapping[str, Any]], one: ToolFormat = FALLBACK) -> str:
    """What tells the model of its tools, and of the format in which it will have to call them."""
    lines = "\n".join(json_of(tool) for tool in tools)
    example = one.section_begin + call("<function-name>", None, one) + one.section_end
    return (
        "You may call one or more functions to assist with the user query.\n"
        "These are the functions, each as one line of JSON:\n"
        f"<tools>\n{lines}\n</tools>\n"
        f"To call a function, answer in this form:\n{example}"
    )


def call(name: str, arguments: Any, one: ToolFormat = FALLBACK) -> str:
    """A former call; without arguments, an example of one."""
    if one.arguments is not JSON_ARGUMENTS:
        one = FALLBACK
    text = "<arguments>" if arguments is None else json_of(arguments)
    # One copy, where "+" would make two, of what may be long.
    return "".join((one.call_head(name, 0), text, one.tail))


def result(content: str) -> str:
    """The result of a former call."""
    return f"<tool_response>\n{content}\n</tool_response>"
