"""Seed-OSS: each argument between tags of its own, behind a tag of the family's."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.pair_arguments import PairSyntax

SEED_OSS = ToolFormat(
    name="seed-oss",
    detects=lambda template: "<seed:tool_call>" in template,
    trigger="<seed:tool_call>",
    head="<seed:tool_call>\n<function={name}>\n",
    tail="</function>\n</seed:tool_call>",
    separator="\n",
    arguments=PairSyntax("<parameter={key}>", "</parameter>\n").style(),
)
