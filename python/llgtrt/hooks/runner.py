"""Calls the methods of a hook: off the server's event loop, within a time limit, without harm."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from .errors import HookFailedError, HookTimeoutError
from .requests import METHODS, HookEnd, HookRequest, Refusal
from .user_loop import UserLoop

logger = logging.getLogger("llgtrt.hooks")

LAST_CALLS_S = 2.0
"""How long ``on_end`` may take for the last requests of a server that ends."""


class HookRunner:
    """A hook and where it runs.

    Args:
        hook: the object.
        loop: where its code runs.
        timeout_s: how long a call may take.

    Attributes:
        count_failure: is told the method and ``error`` or ``timeout``.
    """

    def __init__(self, hook: object, loop: UserLoop, timeout_s: float) -> None:
        found = ((name, getattr(hook, name, None)) for name in METHODS)
        self._methods: dict[str, Callable[..., Any]] = {name: one for name, one in found if one is not None}
        self._loop = loop
        self._timeout_s = timeout_s
        self._ends: set[asyncio.Task[None]] = set()
        self.count_failure: Callable[[str, str], object] = lambda method, reason: None
        self.rewrites_constrained = bool(getattr(hook, "rewrites_constrained", False))

    def has(self, method: str) -> bool:
        """Whether the hook has a method."""
        return method in self._methods

    async def call(self, method: str, *arguments: Any) -> Any:
        """What a method returns; ``None`` if the hook does not have it.

        Raises:
            Refusal: the hook's decision.
            HookFailedError: it raised anything else.
            HookTimeoutError: it took too long. What it still does is of no effect.
        """
        work = self._methods.get(method)
        if work is None:
            return None
        call = asyncio.wrap_future(self._loop.submit(self._run(work, arguments)))
        try:
            done, _ = await asyncio.wait({call}, timeout=self._timeout_s)
        finally:
            # Without effect on one that is done; where this is cancelled, nobody waits for it either.
            call.cancel()
        if not done:
            self.count_failure(method, "timeout")
            logger.error("the hook's %s did not return within %g s", method, self._timeout_s)
            raise HookTimeoutError(f"{method} did not return in time")
        try:
            return call.result()
        except Refusal:
            raise
        except BaseException as error:
            self.fail(method, error)
            raise HookFailedError(f"{method} failed") from error

    def fail(self, method: str, error: BaseException) -> None:
        """Counts a failure and tells it to the log."""
        self.count_failure(method, "error")
        logger.error("the hook's %s failed", method, exc_info=error)

    def end(self, request: HookRequest, end: HookEnd) -> None:
        """Has ``on_end`` called. Nobody waits for it but :meth:`finish`."""
        if self.has("on_end"):
            task = asyncio.get_running_loop().create_task(self._end(request, end))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def finish(self) -> None:
        """Waits for the calls of ``on_end``, for some time."""
        if self._ends:
            await asyncio.wait(self._ends, timeout=LAST_CALLS_S)

    def stop(self, timeout_s: float) -> bool:
        """Ends its threads; false if its code does not return in time. Blocks."""
        return self._loop.stop(timeout_s)

    async def _end(self, request: HookRequest, end: HookEnd) -> None:
        try:
            await self.call("on_end", request, end)
        except Refusal as error:
            self.fail("on_end", error)
        except (HookFailedError, HookTimeoutError):
            pass  # It is counted and in the log; the client has its answer.

    async def _run(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            if inspect.iscoroutinefunction(work):
                return await work(*arguments)
            result = await self._loop.in_thread(_call, work, arguments)
            return await result if inspect.isawaitable(result) else result
        except (SystemExit, KeyboardInterrupt) as error:
            # These may not reach an event loop.
            raise HookFailedError(type(error).__name__) from error


def _call(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A future cannot hold ``StopIteration``."""
    try:
        return work(*arguments)
    except StopIteration as error:
        raise RuntimeError("StopIteration") from error
