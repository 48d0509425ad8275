"""MiniMax M2 and M3: a section of invocations, each argument between tags. M3 marks each tag."""

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

_TAG = "]<]minimax[>["

MINIMAX_M3 = ToolFormat(
    name="minimax-m3",
    detects=lambda template: _TAG in template and "<invoke" in template,
    trigger=f"{_TAG}<tool_call>",
    section_begin=f"{_TAG}<tool_call>\n",
    head=f'{_TAG}<invoke name="{{name}}">',
    tail=f"{_TAG}</invoke>\n",
    section_end=f"{_TAG}</tool_call>",
    arguments=PairSyntax(f"{_TAG}<{{key}}>", f"{_TAG}</{{key}}>", item="item").style(),
)
"""The tag of an argument is its name; lists and objects are written between tags too."""
