"""Where the operator's code runs: an event loop of its own, and threads of its own.

The server's event loop never runs it. A method that blocks keeps other methods of the same class, but neither
probes nor metrics nor the draining of the server.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

logger = logging.getLogger("llgtrt.hooks")

Result = TypeVar("Result")


class UserLoop:
    """The loop and its threads.

    Args:
        threads: synchronous calls at the same time.
        name: of the loop's thread; the others have ``-sync`` behind it.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"{name}-sync")
        self._calls: set[Future[Any]] = set()
        self._stopping = False
        self._last: asyncio.Task[None] | None = None
        # Where that code itself calls run_in_executor(None, ...) or asyncio.to_thread.
        self._loop.set_default_executor(self._threads)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Starts a coroutine there. Any thread may call it; cancelling the future cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, work: Callable[[], object]) -> None:
        """Calls something there."""
        self._loop.call_soon_threadsafe(work)

    def start(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Has something synchronous done on one of the threads."""
        call = self._threads.submit(contextvars.copy_context().run, work, *arguments)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of :meth:`start`. Where nobody waits any more the call still runs to its end."""
        return await self.wait(self.start(work, *arguments))

    async def wait(self, call: Future[Result]) -> Result:
        """The result of a call, which goes on where this is cancelled."""
        return await asyncio.shield(asyncio.wrap_future(call))

    def stop(self, timeout_s: float) -> bool:
        """Cancels what runs, ends the threads; false if a call does not return in time. Blocks."""
        self._stopping = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._loop.close()
        return not concurrent.futures.wait(list(self._calls), timeout_s).not_done

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopping:
            try:
                self._loop.run_forever()
            except BaseException:  # noqa: PERF203 (one round, unless the model is broken)
                # sys.exit() in a task of that code.
                logger.exception("%s: the code tried to end the process", self._thread.name)

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._last = self._loop.create_task(self._stop_after(tasks))

    async def _stop_after(self, tasks: set[asyncio.Task[Any]]) -> None:
        if tasks:
            await asyncio.wait(tasks)
        self._loop.stop()
