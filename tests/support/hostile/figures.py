"""What the suite measured, for the table that pytest prints at its end."""

from __future__ import annotations

_ROWS: list[tuple[str, str]] = []


def record(case: str, result: str) -> None:
    """Adds a row."""
    _ROWS.append((case, result))


def table() -> list[str]:
    """The rows so far, in columns."""
    width = max((len(case) for case, _ in _ROWS), default=0)
    return [f"{case:<{width}}  {result}" for case, result in _ROWS]
