"""Waiting for what another process or thread brings about."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 20.0, *, pause_s: float = 0.01) -> T:
    """Polls ``condition`` until it is true, and gives its value; fails with ``what`` at the deadline."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        pause.wait(pause_s)
    return value


async def eventually(condition: Callable[[], bool]) -> None:
    """Polls a condition that no event announces."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
