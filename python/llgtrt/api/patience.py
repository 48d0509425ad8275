"""Work before the answer begins that may take long: it ends when nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from llgtrt.api.errors import RequestTimeoutError
from llgtrt.api.metrics import HttpMetrics

Result = TypeVar("Result")


async def while_connected(
    request: Request, work: Coroutine[Any, Any, Result], timeout_s: float | None, metrics: HttpMetrics
) -> Result:
    """The result of ``work``, which is cancelled when the client leaves or the time is over.

    The body of the request must have been read.

    Raises:
        ClientDisconnect: the client left.
        RequestTimeoutError: it took longer than ``timeout_s``.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if leaving.done():
            metrics.disconnect("disconnected")
            raise ClientDisconnect
        raise RequestTimeoutError
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
            if not working.cancelled():
                working.exception()  # Nobody is left to hear of it.


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
