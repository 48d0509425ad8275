"""How many connections may be open: each is a file, and the process may have only so many.

Beyond the limit the operating system would take a connection and drop it without a word. A server that stops
a little before can still say that it is full.
"""

from __future__ import annotations

import enum
import logging
import resource
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger("llgtrt.server")

SPARE_FILES = 32
"""For what else is opened while requests run, and for the last words to connections that are turned away."""
SHARE_OF_FILES = 8
"""One of so many files may be a second descriptor of a connection that the core writes to (`outlets.rs`)."""
LEAST_CONNECTIONS = 8
"""Served whatever the limit says: fewer would be no server."""
MOST_LAST_WORDS = 16
"""Connections at a time that are told why they are turned away; more are cut off."""
LOG_INTERVAL_S = 60.0


class Admission(enum.Enum):
    """What becomes of a new connection."""

    SERVED = enum.auto()
    TOLD = enum.auto()
    """It gets an answer that says why it is not served."""
    CUT = enum.auto()


class ConnectionGate:
    """Counts connections, and says what becomes of a new one. Used on the event loop only."""

    def __init__(self, most: int | None, refused: Callable[[], None] | None = None) -> None:
        """``most`` connections are served; None: any number. ``refused`` is called for each that is not."""
        self._most = most
        self._refused = refused
        self._served = 0
        self._told = 0
        self._logged_at: float | None = None

    def enter(self) -> Admission:
        """A connection has come."""
        if self._most is None or self._served < self._most:
            self._served += 1
            return Admission.SERVED
        self._note_refusal()
        if self._told < MOST_LAST_WORDS:
            self._told += 1
            return Admission.TOLD
        return Admission.CUT

    def leave(self, admission: Admission) -> None:
        """A connection of that kind is gone."""
        if admission is Admission.SERVED:
            self._served -= 1
        elif admission is Admission.TOLD:
            self._told -= 1

    def _note_refusal(self) -> None:
        if self._refused is not None:
            self._refused()
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            logger.warning(
                "%d connections are open, as many as the limit of open files allows (ulimit -n): turning "
                "others away",
                self._served,
            )


def most_connections() -> int | None:
    """How many connections the process may have beside the files that are open now; None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    open_now = sum(1 for _ in Path("/proc/self/fd").iterdir())
    # Those second descriptors have numbers below that part of the limit, as most files that are open now.
    return max(soft - max(open_now, soft // SHARE_OF_FILES) - SPARE_FILES, LEAST_CONNECTIONS)
