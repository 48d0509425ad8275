"""gpt-oss: a call is a message to the function on the channel for comments. The control token behind it ends
the answer."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat
from llgtrt.tools.reasoning import speaks_harmony

_HEAD = "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"

HARMONY = ToolFormat(
    name="harmony",
    detects=speaks_harmony,
    head=_HEAD,
    tail="",
    openings=(_HEAD,),
    parallel=False,
)
