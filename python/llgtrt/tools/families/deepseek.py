"""DeepSeek: V3 and R1 write the arguments in a fence of Markdown, V3.1 and later right behind the name."""

from __future__ import annotations

from llgtrt.tools.format import ToolFormat

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEPARATOR, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


def _is_v3(template: str) -> bool:
    return _BEGIN in template and "```json" in template


def _is_v31(template: str) -> bool:
    return _BEGIN in template and "```json" not in template


DEEPSEEK_V3 = ToolFormat(
    name="deepseek-v3",
    detects=_is_v3,
    trigger=_BEGIN,
    section_begin=_BEGIN,
    head=f"{_CALL}function{_SEPARATOR}{{name}}\n```json\n",
    tail=f"\n```{_CALL_END}",
    separator="\n",
    section_end=_END,
)

DEEPSEEK_V31 = ToolFormat(
    name="deepseek-v3.1",
    detects=_is_v31,
    trigger=_BEGIN,
    section_begin=_BEGIN,
    head=f"{_CALL}{{name}}{_SEPARATOR}",
    tail=_CALL_END,
    section_end=_END,
)
