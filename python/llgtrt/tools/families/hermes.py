"""Hermes, Qwen 2.5 and 3, Granite 4, and every template that shows a JSON object between these tags."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat


def _detects(template: str) -> bool:
    return "<tool_call>" in template and "<function=" not in template and "<arg_key>" not in template


HERMES = ToolFormat(
    name="hermes",
    detects=_detects,
    trigger="<tool_call>",
    head='<tool_call>\n{"name": "{name}", "arguments": ',
    tail="}\n</tool_call>",
    separator="\n",
)
