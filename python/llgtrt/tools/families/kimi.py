"""Kimi K2: calls are numbered, and their ids are made of name and number."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat


def _new_id(name: str, index: int) -> str:
    return f"functions.{name}:{index}"


KIMI_K2 = ToolFormat(
    name="kimi-k2",
    detects=lambda template: "<|tool_calls_section_begin|>" in template,
    trigger="<|tool_calls_section_begin|>",
    section_begin="<|tool_calls_section_begin|>",
    head="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
    tail="<|tool_call_end|>",
    section_end="<|tool_calls_section_end|>",
    new_id=_new_id,
)
