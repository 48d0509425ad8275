"""Mistral: older models write a list of objects behind a control token, newer a name and arguments."""

from __future__ import annotations

import secrets
import string

from llgtrt.tools.format import ToolFormat


def _new_id(_name: str, _index: int) -> str:
    """Nine letters and digits: the templates refuse others."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


MISTRAL = ToolFormat(
    name="mistral",
    detects=lambda template: "[TOOL_CALLS]" in template and "[ARGS]" not in template,
    trigger="[TOOL_CALLS]",
    section_begin="[TOOL_CALLS][",
    head='{"name": "{name}", "arguments": ',
    tail="}",
    separator=", ",
    section_end="]",
    new_id=_new_id,
)
"""Mistral 7B v0.3, Nemo, Small 3, Large 2."""

MISTRAL_ARGS = ToolFormat(
    name="mistral-args",
    detects=lambda template: "[TOOL_CALLS]" in template and "[ARGS]" in template,
    trigger="[TOOL_CALLS]",
    head="[TOOL_CALLS]{name}[ARGS]",
    tail="",
    new_id=_new_id,
)
"""Mistral Small 3.2, Magistral, Devstral and later."""
