"""A request that the server answers itself, out of several requests of the core.

To its consumer it is a stream like any other: one payload, errors, cancellation. What the core hands out
cannot be made here, so these classes have the same attributes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from llgtrt._native import Delta, RequestHandle, Summary
from llgtrt.engine.stream import Payload, Stream


@dataclass(frozen=True, slots=True)
class ComposedUsage:
    """Token counts; see ``Usage``."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0


@dataclass(frozen=True)
class ComposedChoice:
    """One choice, whole; see ``ChoiceDelta``."""

    index: int
    text: str
    token_count: int
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: str | None = None
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] | None = None
    text_token_ids: list[int] | None = None
    prompt_logprobs: str | None = None
    constraint: str | None = None
    context_logits: Any = None
    generation_logits: Any = None

    @cached_property
    def _logprobs(self) -> bytes | None:
        # Asked for a part at a time.
        return None if self.logprobs is None else self.logprobs.encode()

    @property
    def logprobs_bytes(self) -> int | None:
        """See ``ChoiceDelta``."""
        return None if self._logprobs is None else len(self._logprobs)

    @property
    def prompt_logprobs_bytes(self) -> None:
        """A composed answer has none."""
        return None

    def logprobs_piece(self, start: int, size: int) -> bytes:
        """See ``ChoiceDelta``."""
        return (self._logprobs or b"")[start : start + size]


@dataclass(frozen=True, slots=True)
class ComposedDelta:
    """The only payload; see ``Delta``."""

    choices: list[ComposedChoice] = field(default_factory=list)
    usage: ComposedUsage | None = None
    error: Exception | None = None

    @property
    def so_far(self) -> ComposedUsage:
        """What was counted."""
        return self.usage or ComposedUsage()


@dataclass(slots=True)
class ComposedSummary:
    """What is known of the request; see ``Summary``."""

    usage: ComposedUsage = field(default_factory=ComposedUsage)
    finish_reasons: list[str] = field(default_factory=list)
    compile_s: tuple[float, float] | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None


class ComposedRequest:
    """Runs what makes the payload, and stands in for the core's handle.

    Attributes:
        id: below 0, unlike those of the core.
    """

    def __init__(
        self, number: int, work: Coroutine[Any, Any, ComposedDelta], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.id = -number
        self._loop = loop
        self._began = loop.time()
        self._summary = ComposedSummary()
        self._stream: Stream | None = None
        self._payload: Payload | None = None
        self._task = loop.create_task(work)
        self._task.add_done_callback(self._done)

    def feed(self, stream: Stream) -> None:
        """Gives the payload to a stream as soon as it is there."""
        self._stream = stream

    def handle(self) -> RequestHandle:
        """It, as a stream takes it."""
        return cast(RequestHandle, self)

    def take(self) -> tuple[Payload, bool] | None:
        """The payload, once."""
        payload, self._payload = self._payload, None
        return None if payload is None else (payload, True)

    def summary(self) -> Summary:
        """What is known of it."""
        return cast(Summary, self._summary)

    def cancel(self) -> None:
        """Ends the work. Idempotent."""
        self._task.cancel()
        self._stream = None

    def _done(self, task: asyncio.Task[ComposedDelta]) -> None:
        self._summary.ended_s = self._loop.time() - self._began
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            made = task.result()
            self._summary.usage = made.so_far
            self._summary.finish_reasons = [choice.finish_reason for choice in made.choices]
        elif isinstance(error, Exception):
            made = ComposedDelta(error=error)
        else:
            raise error
        self._payload = cast(Delta, made)
        stream = self._stream
        if stream is not None and stream.waits:
            self._payload = None
            stream.deliver(cast(Delta, made), True)
