"""Work on a request where it does no harm: on the event loop while it is short, else on a thread.

The body's size bounds everything that a request can make the server do before the core has it: parsing,
checking, writing out a schema, rendering. Whoever does such work on a thread should also let go of the
interpreter's lock: one call into C holds it for as long as it takes, on whichever thread it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

INLINE_BYTES = 16 * 1024
"""The work on a smaller body takes less than a millisecond: a thread would take longer to begin."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def in_proportion(
    size: int, work: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    """The result of ``work``, called here or on a thread, depending on ``size`` in bytes."""
    if size <= INLINE_BYTES:
        return work(*arguments, **options)
    return await asyncio.to_thread(work, *arguments, **options)
