"""Nemotron: a list of objects between tags."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat

NEMOTRON = ToolFormat(
    name="nemotron",
    detects=lambda template: "<TOOLCALL>" in template,
    trigger="<TOOLCALL>",
    section_begin="<TOOLCALL>[",
    head='{"name": "{name}", "arguments": ',
    tail="}",
    separator=", ",
    section_end="]</TOOLCALL>",
)
