"""What becomes known of a request on its way, for the line about it in the log."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from llgtrt.engine import Summary

GENERATION = "llgtrt.generation"
"""Key of a request's scope: the generation that answers it, once the core has it."""

RECORD = "llgtrt.record"
"""Key of a request's scope: names and values that its line in the log will have."""


def note(scope: Scope, **fields: Any) -> None:
    """Adds to the line about a request; ``None`` says nothing."""
    record = scope.get(RECORD)
    if record is not None:
        record.update({name: value for name, value in fields.items() if value is not None})


def note_summary(scope: Scope, summary: Summary) -> None:
    """Adds the counts and times of a request that the core has had."""
    usage = summary.usage
    if usage.prompt_tokens > 0:
        note(
            scope,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            forced_tokens=usage.forced_tokens,
        )
    note(scope, finish=",".join(sorted(set(summary.finish_reasons))) or None)
    compiled = summary.compile_s
    note(
        scope,
        queue_ms=_ms(0.0, summary.started_s),
        compile_ms=None if compiled is None else _ms(*compiled),
        prefill_ms=_ms(summary.started_s, summary.first_token_s),
        decode_ms=_ms(summary.first_token_s, summary.ended_s),
    )


def _ms(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else round((end_s - begin_s) * 1000, 1)
