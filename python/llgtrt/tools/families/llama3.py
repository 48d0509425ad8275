"""Llama 3.1 to 3.3: one JSON object as the whole answer, which nothing marks, or ``<|python_tag|>`` does.

The models write ``{"name": ..., "parameters": ...}``, with and without a blank behind colons and commas, and
often with a type before the name. An answer that begins otherwise is text.
"""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat

_HEAD = '{"name": "{name}", "parameters": '
_BARE = (
    _HEAD,
    '{"type": "function", "name": "{name}", "parameters": ',
    '{"name": "{name}", "arguments": ',
)
_OPENINGS = (*_BARE, *(head.replace('": ', '":').replace('", ', '",') for head in _BARE))


def _detects(template: str) -> bool:
    return "<|start_header_id|>" in template and ("python_tag" in template or '"parameters": ' in template)


LLAMA3 = ToolFormat(
    name="llama3",
    detects=_detects,
    head=_HEAD,
    tail="}",
    openings=(*_OPENINGS, *(f"<|python_tag|>{head}" for head in _OPENINGS)),
    parallel=False,
    marked=ToolFormat(
        name="llama3-marked",
        detects=_detects,
        trigger="<|python_tag|>",
        head=f"<|python_tag|>{_HEAD}",
        tail="}",
        parallel=False,
    ),
)
