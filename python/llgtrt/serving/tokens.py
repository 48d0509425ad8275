"""Texts to tokens and back, for requests that ask for nothing else: off the event loop, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from llgtrt.engine import AsyncEngine, OverloadedError, new_error
from llgtrt.serving.errors import RequestError

THREAD_NAME = "llgtrt-tokens"
THREADS = 2
"""The work is the processor's alone: more would only take the masks' cores."""

MAX_WAITING = 64
"""Texts in work or waiting. Each holds its body, which has a limit of its own."""

STACK_BYTES = 64 * 1024 * 1024
"""Tokenizers recurse on the shape of their input."""

LEAST_TOKENS = 8192
CHARS_PER_TOKEN = 8
"""Handing over a list of ids keeps the interpreter's lock: its length has to have a bound. A longer text than
this many characters per token of the context would hardly ever fit it."""

TOO_LONG = "context_length_exceeded"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def most_tokens(engine: AsyncEngine) -> int:
    """How many tokens a list may hold that nothing is generated from."""
    return max(LEAST_TOKENS, engine.model_info.max_sequence_tokens)


class TokenWork:
    """The tokenizer of the served model, on threads of its own."""

    def __init__(self, engine: AsyncEngine, threads: ThreadPoolExecutor | None = None) -> None:
        self._engine = engine
        self._threads = threads or ThreadPoolExecutor(THREADS, thread_name_prefix=THREAD_NAME)
        self._running = 0

    async def encode(self, text: str, add_special: bool, param: str = "messages") -> list[int]:
        """Token ids of a text.

        Raises:
            RequestError: the text is far longer than the context; ``param`` is its field.
            InvalidRequestError: the tokenizer refuses it.
            OverloadedError: too many texts wait.
        """
        most = CHARS_PER_TOKEN * most_tokens(self._engine)
        if len(text) > most:
            message = f"{param}: a text of at most {most} characters can be tokenized here."
            raise RequestError(message, param, TOO_LONG)
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
