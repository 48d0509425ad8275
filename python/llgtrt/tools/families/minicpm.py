"""MiniCPM 5: each argument between tags, in a CDATA block where it may hold what looks like one."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.pair_arguments import PairSyntax

MINICPM5 = ToolFormat(
    name="minicpm5",
    detects=lambda template: "<function name=" in template and "<param name=" in template,
    trigger="<function name=",
    head='<function name="{name}">',
    tail="</function>",
    separator="\n",
    arguments=PairSyntax('<param name="{key}">', "</param>", quotes=("<![CDATA[", "]]>")).style(),
)
