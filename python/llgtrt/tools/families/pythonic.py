"""Llama 4 and others that write calls as a list in Python. Values are JSON but for a boolean by itself."""

from __future__ import annotations

import re

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.pair_arguments import PairSyntax

_ASKS = re.compile(r"\[func_name1\(|\[func1\(|tool_call\.name \+ '\('|\(params_name1=")

PYTHON_ARGUMENTS = PairSyntax("{key}=", "", join=", ", raw_strings=False, python=True).style()

PYTHONIC = ToolFormat(
    name="pythonic",
    detects=lambda template: _ASKS.search(template) is not None,
    section_begin="[",
    head="{name}(",
    tail=")",
    separator=", ",
    section_end="]",
    openings=("[{name}(",),
    arguments=PYTHON_ARGUMENTS,
)
