"""llgtrt with a probe in its event loop. Run as a program: ``loop_probe.py FILE ARGUMENTS...``.

Writes to FILE, for every turn of the loop that took longer than ``NOTED_S``, a line of when it ended (seconds
since 1970) and how long it took (seconds).
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, TextIO

import llgtrt.app.process
from llgtrt.cli import main

PAUSE_S = 0.001
NOTED_S = 0.002


async def probe(notes: TextIO) -> None:
    """Sleeps for ``PAUSE_S`` again and again; whatever it sleeps longer the loop was held by somebody."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(PAUSE_S)
        late = time.perf_counter() - begun - PAUSE_S
        if late > NOTED_S:
            notes.write(f"{time.time()} {late}\n")


def run() -> None:
    """Serves until a signal."""
    notes = open(sys.argv.pop(1), "w", buffering=1)  # noqa: SIM115 (as long as the process)
    serve = llgtrt.app.process._serve

    async def probed(*arguments: Any, **options: Any) -> int:
        watcher = asyncio.ensure_future(probe(notes))
        try:
            return await serve(*arguments, **options)
        finally:
            watcher.cancel()

    vars(llgtrt.app.process)["_serve"] = probed
    main()


if __name__ == "__main__":
    run()
