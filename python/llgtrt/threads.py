"""Threads that run before there is work for them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from llgtrt.config import ConfigError

MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""As many as Python's own default."""
START_TIMEOUT_S = 30.0


def start_threads(name: str, count: int = MOST_THREADS, stack_bytes: int = 0) -> ThreadPoolExecutor:
    """Threads that run already.

    Python starts them when there is work, and a process that has run out of memory or of threads would learn
    of it then, in the middle of a request. With ``stack_bytes`` 0 their stacks have the usual size.

    Raises:
        ConfigError: the system does not give as many threads.
    """
    threads = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_run = threading.Barrier(count + 1)
    usual = threading.stack_size(stack_bytes)
    try:
        for _ in range(count):
            # A thread that waits takes no more work: each of these needs one of its own.
            threads.submit(all_run.wait, START_TIMEOUT_S)
        all_run.wait(START_TIMEOUT_S)
    except BaseException as error:
        all_run.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, RuntimeError):
            raise ConfigError(f"cannot start {count} threads: {error} (ulimit -u and -v)") from error
        raise
    finally:
        threading.stack_size(usual)
    return threads
