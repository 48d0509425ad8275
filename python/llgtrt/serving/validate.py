"""Say what a grammar is worth, without generating: the use case behind ``/v1/grammar/validate``."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from llgtrt.engine import AsyncEngine, OverloadedError, new_error
from llgtrt.serving.protocol import ValidateRequest
from llgtrt.serving.protocol.validate import GrammarQuestion, instance_texts, resolve_question
from llgtrt.threads import MOST_THREADS

MAX_AT_ONCE = 32
"""Reports that are asked for and not answered."""
THREADS = MOST_THREADS
"""Reports in progress. Each holds a thread that only waits: the work is done in the core's compile slots, two
by default. Every thread more keeps memory for itself in each allocator."""

THREAD_NAME = "llgtrt-validate"


class ValidateService:
    """Reports on grammars with the tokenizer of the served model."""

    def __init__(self, engine: AsyncEngine, threads: ThreadPoolExecutor | None = None) -> None:
        """``threads`` are not the loop's own: prompts are rendered there, and must not wait for grammars."""
        self._engine = engine
        self._threads = threads or ThreadPoolExecutor(THREADS, thread_name_prefix=THREAD_NAME)
        self._running = 0

    async def report(self, request: ValidateRequest) -> bytes:
        """The report as JSON. What is wrong with the grammar is part of it.

        Raises:
            RequestError: there is not exactly one grammar, or a field is wrong.
            InvalidRequestError: there are too many instances, or one is too large.
            OverloadedError: too many grammars wait.
            ShuttingDownError: the server is shutting down.
        """
        question = resolve_question(request)
        if self._running >= MAX_AT_ONCE:
            raise new_error(OverloadedError, "Too many grammars are being looked at.")
        self._running += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._make, question, request)
        finally:
            self._running -= 1

    def _make(self, question: GrammarQuestion, request: ValidateRequest) -> bytes:
        texts = instance_texts(request.instances)
        return self._engine.report(question.grammar, texts, question.residual, question.places)
