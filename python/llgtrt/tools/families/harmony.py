"""gpt-oss: a call is a message to the function on the channel for comments. The control token behind it ends
the answer."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat

_HEAD = "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"

HARMONY = ToolFormat(
    name="harmony",
    detects=lambda template: "<|channel|>" in template and "<|constrain|>" in template,
    head=_HEAD,
    tail="",
    openings=(_HEAD,),
    parallel=False,
)
