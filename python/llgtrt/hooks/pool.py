"""Runs an input processor off the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from concurrent.futures import Future, ThreadPoolExecutor

from llgtrt.chat import ChatError
from llgtrt.engine import LlgtrtError

from .errors import InputError, ProcessorFailedError
from .prepared import PreparedInput, check_prepared
from .processor import InputProcessor, InputRequest

logger = logging.getLogger("llgtrt.hooks")


class ProcessorPool:
    """A processor and its threads. Requests wait in order; how many wait is bounded by the server's queue, in
    which each has reserved its place.

    Args:
        processor: the processor.
        threads: calls at the same time.
        vocab_size: token ids of the model are below it.
    """

    def __init__(self, processor: InputProcessor, threads: int, vocab_size: int) -> None:
        self._processor = processor
        self._vocab_size = vocab_size
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="llgtrt-input")
        self._calls: set[Future[PreparedInput]] = set()

    async def process(self, request: InputRequest) -> PreparedInput:
        """The prompt of a conversation, in its final form.

        Cancelling it takes a waiting request out of the queue; one that runs is told by
        ``InputRequest.cancelled``, and its result is dropped.

        Raises:
            InputError: the client has to change its request.
            LlgtrtError: the tokenizer refused a text.
            ProcessorFailedError: the processor failed.
        """
        call = self._threads.submit(self.run, request)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            request.cancel()
            raise

    def calls(self) -> int:
        """Requests that run or wait."""
        return len(self._calls)

    def run(self, request: InputRequest) -> PreparedInput:
        """The same on the calling thread."""
        try:
            return check_prepared(self._processor.process(request), self._vocab_size)
        except (InputError, ProcessorFailedError):
            raise
        except ChatError as error:
            raise InputError(error.message, error.param) from error
        except LlgtrtError as error:
            if error.kind == "invalid_request":
                raise InputError(error.message, error.param or "messages") from error
            raise
        except BaseException as error:
            # Also SystemExit and StopIteration: neither may reach the event loop.
            raise ProcessorFailedError("the input processor failed") from error

    def stop(self, timeout_s: float) -> bool:
        """Ends the threads; false if a call does not return in time. Blocks."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not concurrent.futures.wait(list(self._calls), timeout_s).not_done
