"""Work on a request where it does no harm: on the event loop while it is short, else on a thread.

The body's size bounds everything that a request can make the server do before the core has it: parsing,
checking, writing out a schema, rendering. Whoever does such work on a thread should also let go of the
interpreter's lock: one call into C holds it for as long as it takes, on whichever thread it runs.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

INLINE_BYTES = 16 * 1024
"""The work on a smaller body takes less than a millisecond: a thread would take longer to begin."""

MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""As many as Python's own default."""
START_TIMEOUT_S = 30.0

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def in_proportion(
    size: int, work: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    """The result of ``work``, called here or on a thread, depending on ``size`` in bytes."""
    if size <= INLINE_BYTES:
        return work(*arguments, **options)
    return await asyncio.to_thread(work, *arguments, **options)


def started_threads(name: str, count: int = MOST_THREADS, stack_bytes: int = 0) -> ThreadPoolExecutor:
    """Threads that run already.

    Python starts them when there is work, and a process that has run out of memory or of threads would learn
    of it then, in the middle of a request. With ``stack_bytes`` 0 their stacks have the usual size.

    Raises:
        RuntimeError: the system does not give as many threads.
    """
    threads = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_run = threading.Barrier(count + 1)
    usual = threading.stack_size(stack_bytes)
    try:
        for _ in range(count):
            # A thread that waits takes no more work: each of these needs one of its own.
            threads.submit(all_run.wait, START_TIMEOUT_S)
        all_run.wait(START_TIMEOUT_S)
    except BaseException:
        all_run.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        threading.stack_size(usual)
    return threads
