"""A native engine whose output a test writes by hand: no threads, no timing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from llgtrt.engine import AsyncEngine, OverloadedError, new_error

AppFactory = Callable[..., FastAPI]
"""Builds the application on a fake engine with some ``server`` options."""

MODEL_INFO = {
    "backend": "fake",
    "max_sequence_tokens": 1000,
    "max_batch_size": 8,
    "vocab_size": 100,
    "prompt_logprobs": False,
    "special_tokens": ["<|end|>"],
    "something_new": 1,
}


@dataclass
class FakeUsage:
    """Token counts."""

    prompt_tokens: int = 3
    completion_tokens: int = 5
    cached_tokens: int = 1
    forced_tokens: int = 0


@dataclass
class FakeChoice:
    """One choice's text."""

    index: int
    text: str
    finish_reason: str | None = "stop"
    logprobs: str | None = None
    stop_reason: str | int | None = None
    constraint: str | None = None
    token_count: int = 1
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: str | None = None

    @property
    def logprobs_bytes(self) -> int | None:
        return None if self.logprobs is None else len(self.logprobs.encode())

    @property
    def prompt_logprobs_bytes(self) -> int | None:
        return None if self.prompt_logprobs is None else len(self.prompt_logprobs.encode())

    def logprobs_piece(self, start: int, size: int) -> bytes:
        return (self.logprobs or "").encode()[start : start + size]

    def prompt_logprobs_piece(self, start: int, size: int) -> bytes:
        return (self.prompt_logprobs or "").encode()[start : start + size]


@dataclass
class FakeSummary:
    """What the core knows of a request at its end."""

    usage: FakeUsage = field(default_factory=FakeUsage)
    finish_reasons: list[str] = field(default_factory=list)
    compile_s: tuple[float, float] | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None


@dataclass
class FakeDelta:
    """A structured payload."""

    choices: list[FakeChoice] = field(default_factory=list)
    usage: FakeUsage | None = None
    so_far: FakeUsage = field(default_factory=FakeUsage)
    error: Exception | None = None


class FakeHandle:
    """A submitted request. ``put`` is what the core's threads do; ``take`` is what Python calls."""

    def __init__(self, engine: FakeNativeEngine, id: int, request: Any) -> None:
        self.id = id
        self.request = request
        self.cancelled = False
        self.takes = 0
        self.finished = False
        self.known = FakeSummary(FakeUsage(0, 0, 0))
        self._engine = engine
        self.written: list[tuple[int, bytes]] = []
        """What Python wrote to which socket."""
        self.taken_by_socket = 1 << 30
        """Bytes of each chunk that a socket takes at once; below 0 there is no descriptor for it."""
        self.stops = 0
        self.unsent = b""
        """The end of a chunk that a socket did not take, and that was not drained."""
        self.ago_s: float | None = None
        """How long ago the core has written something itself."""
        self.asked_ago = 0
        self._payloads: list[tuple[Any, bool]] = []
        self._asked = False

    def write_to(self, socket: int, frames: bytes) -> bytes:
        if self.taken_by_socket < 0:
            raise OSError(errno.EMFILE, "too many open files")
        self.written.append((socket, frames))
        return frames[self.taken_by_socket :]

    def stop_writing(self) -> bytes:
        self.stops += 1
        unsent, self.unsent = self.unsent, b""
        return unsent

    def written_ago_s(self) -> float | None:
        self.asked_ago += 1
        return self.ago_s

    def put(self, payload: Any, last: bool = False) -> None:
        """Makes a payload ready and signals if the request waits."""
        self._payloads.append((payload, last))
        self.finished = last
        if isinstance(payload, FakeDelta):
            self.known.usage = payload.usage or self.known.usage
            self.known.finish_reasons += [one.finish_reason for one in payload.choices if one.finish_reason]
        if self._asked:
            self._asked = False
            self._engine.ready.append(self)
            os.eventfd_write(self._engine.event_fd, 1)

    def take(self) -> tuple[Any, bool] | None:
        self.takes += 1
        if self._payloads:
            return self._payloads.pop(0)
        self._asked = True
        return None

    def summary(self) -> FakeSummary:
        return self.known

    def cancel(self) -> None:
        self.cancelled = True
        self._payloads.clear()


class FakeNativeEngine:
    """Has the methods of ``_native.Engine`` that the event loop uses."""

    def __init__(self, **model_info: Any) -> None:
        self.model_info = json.dumps({**MODEL_INFO, **model_info})
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.ready: list[FakeHandle] = []
        self.handles: list[FakeHandle] = []
        self.reserved: list[int] = []
        self.places = 1000
        self.state = ("ready", "")
        self.drains = 0
        self.stopped = False
        self.broken: Exception | None = None

    def drain(self) -> list[tuple[int, Any, bool]]:
        self.drains += 1
        if self.broken is not None:
            raise self.broken
        os.eventfd_read(self.event_fd)
        ready, self.ready = self.ready, []
        return [(handle.id, *handle._payloads.pop(0)) for handle in ready if not handle.cancelled]

    def reserve(self, sequences: int) -> int:
        if sum(self.reserved) + sequences > self.places:
            raise new_error(OverloadedError, "The queue is full.")
        self.reserved.append(sequences)
        return sequences

    def submit(self, request: Any, permit: Any) -> FakeHandle:
        handle = FakeHandle(self, len(self.handles) + 1, request)
        self.handles.append(handle)
        return handle

    def detokenize(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())

    def metrics(self) -> str:
        return "# fake\n"

    def health(self) -> tuple[str, str]:
        return self.state

    def active_requests(self) -> int:
        return sum(not (handle.cancelled or handle.finished) for handle in self.handles)

    def begin_drain(self) -> None:
        self.state = ("draining", "")

    def shutdown(self) -> None:
        self.stopped = True

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self.event_fd)


def fake_engine(native: FakeNativeEngine) -> AsyncEngine:
    """The asyncio client on a fake; call it on a running loop."""
    return AsyncEngine(native)  # type: ignore[arg-type]


async def settle() -> None:
    """Lets everything that is ready on the loop run, its readers included."""
    for _ in range(5):
        await asyncio.sleep(0)
