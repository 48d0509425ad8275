"""What becomes known of a request on its way, for the line about it in the log."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from llgtrt.engine import Delta

RECORD = "llgtrt.record"
"""Key of a request's scope: names and values that its line in the log will have."""


def note(scope: Scope, **fields: Any) -> None:
    """Adds to the line about a request; ``None`` says nothing."""
    record = scope.get(RECORD)
    if record is not None:
        record.update({name: value for name, value in fields.items() if value is not None})


def note_answer(scope: Scope, delta: Delta) -> None:
    """Adds the counts of a complete answer."""
    usage = delta.usage
    if usage is not None:
        note(
            scope,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            forced_tokens=usage.forced_tokens,
        )
    reasons = sorted({choice.finish_reason for choice in delta.choices if choice.finish_reason is not None})
    note(scope, finish=",".join(reasons))
