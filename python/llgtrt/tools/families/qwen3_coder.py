"""Qwen3-Coder and Qwen 3.5: each argument between tags of its own, plain strings as they are."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.pair_arguments import PairSyntax

QWEN3_CODER = ToolFormat(
    name="qwen3-coder",
    detects=lambda template: "<tool_call>" in template and "<function=" in template,
    trigger="<tool_call>",
    head="<tool_call>\n<function={name}>\n",
    tail="</function>\n</tool_call>",
    separator="\n",
    arguments=PairSyntax("<parameter={key}>\n", "\n</parameter>\n").style(),
)
