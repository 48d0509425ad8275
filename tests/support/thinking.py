"""A template of a model that thinks, and what the simulated engine writes for it."""

from __future__ import annotations

from typing import Any

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% elif reasoning_effort is defined %}<think>\n({{ reasoning_effort }}) "
    "{% else %}<think>\n{% endif %}{% endif %}"
)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
CALL = 'Let me add.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"n":4}}\n</tool_call>'
