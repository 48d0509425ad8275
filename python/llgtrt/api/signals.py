"""How a signal ends the process, from before a model is loaded on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import NoReturn

logger = logging.getLogger("llgtrt.server")


def exit_now(code: int, reason: str) -> NoReturn:
    """Ends the process without waiting for any thread."""
    logger.warning("%s", reason)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Signals:
    """SIGTERM, SIGINT, SIGHUP. The first asks to drain; the next, or one while loading, ends the process."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.can_drain = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        if self.stop.is_set() or not self.can_drain:
            exit_now(128 + number, f"{number.name}: exiting at once")
        logger.info("%s: draining", number.name)
        self.stop.set()
