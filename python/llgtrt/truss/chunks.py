"""What a model's generators yield, as the chunks of an answer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from concurrent.futures import Future
from typing import Any, TypeAlias

from llgtrt.hooks.user_loop import UserLoop

from .errors import contained

logger = logging.getLogger("llgtrt.truss")

UserGenerator: TypeAlias = "Generator[Any, None, None] | AsyncGenerator[Any, None]"

_END = object()


def is_generator(result: object) -> bool:
    """Whether a result is to be streamed."""
    return inspect.isgenerator(result) or inspect.isasyncgen(result)


class Chunks(AsyncIterator[bytes]):
    """The chunks of a generator, for the model's loop; a synchronous one runs on the model's threads.

    Whoever has one closes it.

    Args:
        generator: what the model returned.
        loop: where its code runs.
        name: the method, for the log.
    """

    def __init__(self, generator: UserGenerator, loop: UserLoop, name: str) -> None:
        self._generator = generator
        self._loop = loop
        self._name = name
        self._call: Future[Any] | None = None
        self._first: list[bytes] = []

    async def begin(self) -> Chunks:
        """Computes the first chunk: what is raised before it can still be an answer with a status."""
        first = await anext(self, None)
        self._first = [] if first is None else [first]
        return self

    async def joined(self) -> str:
        """All of them as one text."""
        chunks = [chunk async for chunk in self]
        with contained(self._name):
            return b"".join(chunks).decode()

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            return self._first.pop()
        generator = self._generator
        with contained(self._name):
            if inspect.isasyncgen(generator):
                chunk = await anext(generator, _END)
            else:
                self._call = self._loop.start(next, generator, _END)
                chunk = await self._loop.wait(self._call)
        if chunk is _END:
            raise StopAsyncIteration
        return bytes(chunk) if isinstance(chunk, bytes | bytearray | memoryview) else str(chunk).encode()

    async def aclose(self) -> None:
        """Ends the generator where it is; a call that still runs comes to its end first."""
        generator = self._generator
        if inspect.isasyncgen(generator):
            with contained(self._name):
                await generator.aclose()
        elif self._call is not None and not self._call.done():
            self._call.add_done_callback(self._close)
        else:
            self._loop.start(self._close)

    def _close(self, _call: object = None) -> None:
        try:
            self._generator.close()  # type: ignore[union-attr]
        except BaseException:
            logger.exception("model.py: %s failed while it was closed", self._name)
