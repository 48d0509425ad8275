"""Hands what changes in an engine's prefix cache to whoever publishes it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llgtrt._native import KvEvent
    from llgtrt.engine.client import AsyncEngine

logger = logging.getLogger("llgtrt.engine")

TURN_S = 0.1
"""How long the thread waits for events before it looks after the sink."""


class KvEventSink(Protocol):
    """Publishes events. All calls come from one thread."""

    def publish(self, events: list[KvEvent]) -> None:
        """Publishes events, at least one, in their order."""

    def turn(self) -> None:
        """Called after every batch, and some times a second without one."""

    def close(self) -> None:
        """Nothing comes any more."""


class KvEventReader:
    """A thread that reads an engine's events until the engine is shut down."""

    def __init__(self, engine: AsyncEngine, sink: KvEventSink) -> None:
        self._engine = engine
        self._sink = sink
        self._thread = threading.Thread(target=self._run, name="llgtrt-kv-events", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread's end, which follows the engine's; false if it takes longer. Blocks."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _hand_over(self, events: list[KvEvent]) -> None:
        try:
            if events:
                self._sink.publish(events)
            self._sink.turn()
        except Exception:
            logger.exception("KV events were not published")

    def _run(self) -> None:
        try:
            while (events := self._engine.kv_events(TURN_S)) is not None:
                self._hand_over(events)
        finally:
            self._sink.close()
