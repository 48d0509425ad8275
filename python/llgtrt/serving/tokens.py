"""Texts to tokens and back, for requests that ask for nothing else: off the event loop, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from llgtrt.engine import AsyncEngine, OverloadedError, new_error

THREAD_NAME = "llgtrt-tokens"
THREADS = 2
"""The work is the processor's alone: more would only take the masks' cores."""

MAX_WAITING = 64
"""Texts in work or waiting. Each holds its body, which has a limit of its own."""

STACK_BYTES = 64 * 1024 * 1024
"""Tokenizers recurse on the shape of their input."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class TokenWork:
    """The tokenizer of the served model, on threads of its own."""

    def __init__(self, engine: AsyncEngine, threads: ThreadPoolExecutor | None = None) -> None:
        self._engine = engine
        self._threads = threads or ThreadPoolExecutor(THREADS, thread_name_prefix=THREAD_NAME)
        self._running = 0

    async def encode(self, text: str, add_special: bool) -> list[int]:
        """Token ids of a text.

        Raises:
            InvalidRequestError: the text is too long.
            OverloadedError: too many texts wait.
        """
        return await self.run(self._engine.encode, text, add_special)

    async def run(
        self, work: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        """The result of some work with tokens.

        Raises:
            OverloadedError: too much waits.
        """
        if self._running >= MAX_WAITING:
            raise new_error(OverloadedError, "Too many texts wait to be tokenized.")
        self._running += 1
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: work(*arguments, **options)
        )
        # Work that nobody waits for any more has its thread until it is done.
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, _future: object) -> None:
        self._running -= 1
