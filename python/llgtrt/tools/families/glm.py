"""GLM 4.5 and later: names and values of arguments by turns, each between tags."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.pair_arguments import PairSyntax

GLM4 = ToolFormat(
    name="glm4",
    detects=lambda template: "<tool_call>" in template and "<arg_key>" in template,
    trigger="<tool_call>",
    head="<tool_call>{name}\n",
    tail="</tool_call>",
    separator="\n",
    arguments=PairSyntax("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n").style(),
)
