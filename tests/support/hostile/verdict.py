"""What an answer to a hostile request may be: a whole success, or an error that says what is wrong."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MOST_MESSAGE_CHARS = 2000


def fault_of(status: int, content_type: str, body: bytes) -> str | None:
    """What is wrong with an answer; None for a good one.

    A status of 5xx is always wrong. So is a body that is not strict JSON in UTF-8, an error in no form that
    clients know, and one that repeats a long input.
    """
    if status >= 500:
        return f"status {status}: {body[:300]!r}"
    if content_type.startswith("text/event-stream"):
        return _fault_of_stream(status, body)
    try:
        answer = strict_json(body)
    except ValueError as error:
        return f"status {status}: the body is not JSON: {error}"
    if status < 400:
        return None if isinstance(answer, dict | list) else "a success is neither an object nor a list"
    return _fault_of_error(answer)


def strict_json(body: bytes) -> Any:
    """A value that any JSON parser takes.

    Raises:
        ValueError: it is not UTF-8, not JSON, or holds NaN or an infinity.
    """
    return json.loads(body.decode(), parse_constant=_no_constant)


def _fault_of_stream(status: int, body: bytes) -> str | None:
    events = [event for event in body.split(b"\n\n") if event and not event.startswith(b":")]
    if status != 200 or not body.endswith(b"\n\n"):
        return f"status {status}: the stream does not end: {body[-200:]!r}"
    if events and events[-1] == b"data: [DONE]":
        events.pop()
    try:
        for line in b"\n".join(events).split(b"\n"):
            if line.startswith(b"data: "):
                strict_json(line.removeprefix(b"data: "))
    except ValueError as error:
        return f"an event is not JSON: {error}"
    return None


def _fault_of_error(answer: Any) -> str | None:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict) and set(error) >= {"message", "type"}:
        message = error["message"]
    elif isinstance(error, str) and len(answer) == 1:
        message = error  # Triton's form.
    else:
        return f"no error object: {str(answer)[:300]}"
    if not isinstance(message, str) or not message or len(message) > MOST_MESSAGE_CHARS:
        return f"the message is of no use: {str(message)[:300]!r}, {len(str(message))} characters"
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
