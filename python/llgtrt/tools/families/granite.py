"""Granite 3: a list of objects behind a control token. Granite 4 writes as Hermes does."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat

GRANITE3 = ToolFormat(
    name="granite3",
    detects=lambda template: "<|tool_call|>" in template,
    trigger="<|tool_call|>",
    section_begin="<|tool_call|>[",
    head='{"name": "{name}", "arguments": ',
    tail="}",
    separator=", ",
    section_end="]",
)
