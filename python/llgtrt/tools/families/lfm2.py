"""LFM2: a list of calls as in Python between control tokens."""

from __future__ import annotations

from llgtrt.tools.families.pythonic import PYTHON_ARGUMENTS
from llgtrt.tools.format import ToolFormat

LFM2 = ToolFormat(
    name="lfm2",
    detects=lambda template: "<|tool_call_start|>" in template,
    trigger="<|tool_call_start|>",
    section_begin="<|tool_call_start|>[",
    head="{name}(",
    tail=")",
    separator=", ",
    section_end="]<|tool_call_end|>",
    arguments=PYTHON_ARGUMENTS,
)
