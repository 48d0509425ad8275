"""Output pushed to Dynamo's runtime, on a thread of its own.

The runtime's ``ResponseSender`` costs a third of what asking a generator for each chunk costs. But ``send``
blocks once 128 chunks of an answer wait for their reader, and on the event loop one client that does not read
would stop all others. So a thread sends, for all answers; an answer in which it gets stuck keeps that thread,
and the others get a new one. What a slow reader has not taken stays in the core, which merges it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from llgtrt.engine import Delta

logger = logging.getLogger("llgtrt.dynamo")

MOST_UNSENT = 8
"""Deltas of one answer that may wait for the thread; the core merges later ones."""
STUCK_S = 0.05
"""A thread that takes longer than this for one delta is left to its answer."""


class EgressClosedError(Exception):
    """Nobody waits for the answer any more."""


class Outgoing:
    """One answer on its way. For the event loop, but for :meth:`send`.

    Attributes:
        error: why nothing more can be sent.
    """

    __slots__ = ("_egress", "_given", "_loop", "_send", "_sent", "_waiter", "error", "lane")

    def __init__(self, egress: Egress, send: Callable[[Delta], None]) -> None:
        self._egress = egress
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._given = 0
        self._sent = 0
        self._waiter: asyncio.Future[None] | None = None
        self.error: Exception | None = None
        self.lane: _Lane | None = None

    def offer(self, delta: Delta) -> bool:
        """Takes a delta, or refuses it: too many wait, or the answer has ended."""
        if self.error is not None or self._given - self._sent >= MOST_UNSENT:
            return False
        self._given += 1
        self._egress.give(self, delta)
        return True

    async def sent(self, unsent: int = 0) -> None:
        """Waits until at most ``unsent`` deltas wait to be sent.

        Raises:
            EgressClosedError: the reader has gone, or :meth:`abandon` was called.
            Exception: what making or sending a chunk raised.
        """
        while self.error is None and self._given - self._sent > unsent:
            waiter = self._waiter = self._loop.create_future()
            # The thread looks for a waiter after it has counted.
            if self._given - self._sent > unsent:
                await waiter
        if self.error is not None:
            raise self.error

    def abandon(self) -> None:
        """Sends nothing more, and ends :meth:`sent`."""
        self.error = self.error or EgressClosedError()
        self._wake()

    def close(self) -> None:
        """Ends a thread that only this answer had."""
        self.abandon()
        if self.lane is not None:
            self.lane.end()

    def send(self, delta: Delta) -> None:
        """Makes the chunks of a delta and sends them. On the thread."""
        if self.error is None:
            try:
                self._send(delta)
            except RuntimeError as error:
                # The sender's word for a reader that has gone.
                self.error = EgressClosedError(str(error))
            except Exception as error:
                self.error = error
        self._sent += 1
        if self._waiter is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _Lane:
    """A thread and what it has to send.

    Attributes:
        current: the answer that it is sending.
        count: how many deltas it has sent.
    """

    def __init__(self, items: deque[tuple[Outgoing, Delta]]) -> None:
        self.items = items
        self.lock = threading.Lock()
        self.awake = bool(items)
        self.current: Outgoing | None = None
        self.count = 0
        self._turns: SimpleQueue[bool] = SimpleQueue()
        if items:
            self._turns.put(True)
        # A daemon: at the end of the process it may be stuck.
        threading.Thread(target=self._run, name="llgtrt-push", daemon=True).start()

    def give(self, answer: Outgoing, delta: Delta) -> None:
        with self.lock:
            self.items.append((answer, delta))
            asleep = not self.awake
            self.awake = True
        if asleep:
            self._turns.put(True)

    def end(self) -> None:
        """Ends the thread once it has sent what it has."""
        self._turns.put(False)

    def _run(self) -> None:
        while self._turns.get():
            while True:
                with self.lock:
                    if not self.items:
                        self.current = None
                        self.awake = False
                        break
                    answer, delta = self.items.popleft()
                    self.current = answer
                answer.send(delta)
                self.count += 1
                del answer, delta


class Egress:
    """The thread that sends for all answers. On the event loop."""

    def __init__(self) -> None:
        self._lane: _Lane | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._count = 0

    def give(self, answer: Outgoing, delta: Delta) -> None:
        """Has a delta sent after those before it."""
        if answer.lane is not None:
            answer.lane.give(answer, delta)
            return
        if self._lane is None:
            self._lane = _Lane(deque())
        self._lane.give(answer, delta)
        if self._watch is None:
            self._count = self._lane.count
            self._watch = asyncio.get_running_loop().call_later(STUCK_S, self._look)

    def close(self) -> None:
        """Ends the thread once it has sent what it has."""
        if self._watch is not None:
            self._watch.cancel()
        if self._lane is not None:
            self._lane.end()
        self._lane = self._watch = None

    def _look(self) -> None:
        """Looks from time to time whether the thread is stuck, so that a delta costs no timer."""
        lane = self._lane
        assert lane is not None
        with lane.lock:
            if not lane.awake:
                self._watch = None
                return
            stuck = lane.current if lane.count == self._count else None
            if stuck is not None:
                others = deque(item for item in lane.items if item[0] is not stuck)
                lane.items = deque(item for item in lane.items if item[0] is stuck)
                stuck.lane = lane
                if stuck.error is not None:
                    # It has been closed, or will be.
                    lane.end()
                lane = self._lane = _Lane(others)
                logger.info("a reader is slow: its answer is sent by a thread of its own")
        self._count = lane.count
        self._watch = asyncio.get_running_loop().call_later(STUCK_S, self._look)
