"""What Dynamo's runtime gives a worker, in the same shape, and what is read of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from llgtrt.dynamo.worker import Worker
from llgtrt.engine import AsyncEngine
from llgtrt.serving import AnswerFormats, TokenLimits


class Context:
    """Of one request."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def id(self) -> str:
        return "request-1"

    def is_stopped(self) -> bool:
        return self.stopped.done()

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        return self.stopped


def worker(engine: AsyncEngine, template: str = "") -> Worker:
    return Worker(engine, AnswerFormats.of_model(engine, template), TokenLimits(max_n=4), end_tokens=(257,))


def request(prompt: str = "hello", **members: Any) -> dict[str, Any]:
    """A preprocessed request; ``sampling_options__seed=1`` sets a member of a section."""
    asked: dict[str, Any] = {"token_ids": list(prompt.encode()), "stop_conditions": {"max_tokens": 200}}
    for path, value in members.items():
        section, _, name = path.rpartition("__")
        (asked.setdefault(section, {}) if section else asked)[name] = value
    return asked


async def collect(chunks: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk async for chunk in chunks]


async def answer(one: Worker, asked: dict[str, Any]) -> list[dict[str, Any]]:
    return await collect(one.generate(asked, Context()))


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(chunk["text"] for chunk in chunks if chunk["index"] == index)
