"""MiniMax M2: a section of invocations, each argument between tags."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.pair_arguments import PairSyntax

MINIMAX_M2 = ToolFormat(
    name="minimax-m2",
    detects=lambda template: "<minimax:tool_call>" in template,
    trigger="<minimax:tool_call>",
    section_begin="<minimax:tool_call>\n",
    head='<invoke name="{name}">\n',
    tail="</invoke>\n",
    section_end="</minimax:tool_call>",
    arguments=PairSyntax('<parameter name="{key}">', "</parameter>\n").style(),
)
