"""The HTTP server's life: signals, draining, and the end when the engine fails."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from llgtrt.api.connections import ConnectionGate, most_connections
from llgtrt.api.http_protocol import LimitedHttpProtocol
from llgtrt.api.listen import address
from llgtrt.api.signals import Signals
from llgtrt.config import ConfigError, ServerConfig
from llgtrt.engine import EngineFailedError, LlgtrtError, ShuttingDownError, new_error

logger = logging.getLogger("llgtrt.server")

EXIT_ENGINE_FAILED = 3
POLL_S = 0.05
"""How often to look whether the running requests are done."""
HEALTH_POLL_S = 0.5
"""How often to look whether the engine has failed."""
DATE_S = 1.0
"""How often the date that answers carry is written anew."""
TIDY_S = 1.0
"""How often to look whether nothing runs, so that garbage can be looked for."""
TIDY_SHARE = 0.005
"""Of all time, that this may take."""
LAST_WORDS_S = 2
"""How long clients may take to receive the last bytes before their connections are closed."""


class Working(Protocol):
    """What does the work: an engine, or several models."""

    def health(self) -> tuple[str, str]:
        """State (``ready``, ``draining``, ``stalled``, ``failed``) and an explanation."""

    def active_requests(self) -> int:
        """Requests that are not finished."""

    def begin_drain(self) -> None:
        """Refuses new requests; running ones go on."""

    def abort(self, error: LlgtrtError) -> None:
        """Cancels every request; each consumer sees ``error``."""


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signal handlers, which would end the process by the signal, not by a code; and
    without looking ten times a second whether it is to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        ending = asyncio.ensure_future(self._end.wait())
        while not ending.done():
            await self.on_tick(0)
            await asyncio.wait({ending}, timeout=_until_next(DATE_S))

    def end(self) -> None:
        """Lets :meth:`serve` return."""
        self.should_exit = True
        self._end.set()

    @property
    def busy(self) -> bool:
        return bool(self.server_state.tasks)


class HttpServer:
    """Serves an application on bound sockets until a signal comes or the engine fails."""

    def __init__(
        self,
        application: ASGIApp,
        config: ServerConfig,
        listeners: Sequence[socket.socket],
        tls: ssl.SSLContext | None = None,
        connection_refused: Callable[[], None] | None = None,
    ) -> None:
        """``connection_refused`` is called for each connection beyond what the limit of files allows."""
        # uvicorn warns of every connection that does not speak HTTP; the metrics are the place for those.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._config = config
        self._listeners = list(listeners)
        self._addresses = [address(listener, "http" if tls is None else "https") for listener in listeners]
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                application,
                http=functools.partial(  # type: ignore[arg-type]
                    LimitedHttpProtocol,
                    header_timeout_s=config.header_timeout_s,
                    gate=ConnectionGate(most_connections(), connection_refused),
                ),
                ws="none",
                lifespan="off",
                interface="asgi3",
                root_path=config.root_path,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=config.keep_alive_s,  # type: ignore[arg-type]
                timeout_graceful_shutdown=LAST_WORDS_S,
                ssl_context_factory=None if tls is None else lambda _config, _default: tls,
            )
        )

    async def run(self, engine: Working, signals: Signals) -> int:
        """Serves, and gives the exit code: 0 after a signal, another if the engine failed.

        Raises:
            ConfigError: a socket cannot be listened on.
        """
        self._listen()
        serving = asyncio.ensure_future(self._uvicorn.serve(sockets=self._listeners))
        failed = asyncio.ensure_future(_failure(engine, self._config.exit_after_stall_s))
        stop = asyncio.ensure_future(signals.stop.wait())
        tidy = asyncio.ensure_future(self._tidy())
        signals.can_drain = True
        logger.info("listening on %s", ", ".join(self._addresses))
        try:
            await asyncio.wait({serving, failed, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done() and not failed.done():
                await self._drain(engine, failed)
            if failed.done():
                await self._report_failure(engine, failed.result())
            self._uvicorn.end()
            await serving
            return EXIT_ENGINE_FAILED if failed.done() else 0
        finally:
            failed.cancel()
            stop.cancel()
            tidy.cancel()

    def _listen(self) -> None:
        # uvicorn listens as well, but ends the process itself when it cannot.
        for listener, where in zip(self._listeners, self._addresses, strict=True):
            try:
                listener.listen(2048)
            except OSError as error:  # noqa: PERF203 (one or two sockets)
                raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from error

    async def _tidy(self) -> None:
        """Frees what requests left in cycles, while no request runs.

        The interpreter's own search among what is old begins when as many objects were kept as a quarter of
        those at the last one, which was at the start and counted all modules. Until then such a rest here and
        there keeps whole pages. What there was at the start is exempt, so that a search takes about a
        millisecond; where code of the operator's keeps more, it is made the less often."""
        clock = asyncio.get_running_loop().time
        seen, pause = 0, TIDY_S
        while True:
            await asyncio.sleep(_until_next(pause))
            requests = self._uvicorn.server_state.total_requests
            if requests != seen and not self._uvicorn.busy:
                seen, began = requests, clock()
                gc.collect()
                pause = max(TIDY_S, (clock() - began) / TIDY_SHARE)

    async def _drain(self, engine: Working, failed: asyncio.Future[str]) -> None:
        """Refuses what is new, lets what runs finish, and cancels what takes too long."""
        engine.begin_drain()
        if not await self._idle(engine, self._config.drain_timeout_s, failed):
            if failed.done():
                return
            logger.warning("requests still run after %g s: cancelling them", self._config.drain_timeout_s)
            engine.abort(new_error(ShuttingDownError, "The server is shutting down."))
            await self._idle(engine, LAST_WORDS_S)

    async def _report_failure(self, engine: Working, explanation: str) -> None:
        """Gives every open stream its error event before the process ends."""
        logger.error("the engine failed: %s", explanation)
        if not await self._idle(engine, LAST_WORDS_S / 2):
            engine.abort(new_error(EngineFailedError, "The engine failed."))
            await self._idle(engine, LAST_WORDS_S)

    async def _idle(
        self, engine: Working, timeout_s: float, failed: asyncio.Future[str] | None = None
    ) -> bool:
        """Waits for the end of all requests; false if that takes too long or the engine fails."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._uvicorn.busy or (failed is not None and engine.active_requests() > 0):
            if loop.time() >= deadline or (failed is not None and failed.done()):
                return False
            await asyncio.sleep(POLL_S)
        return True


def _until_next(period_s: float) -> float:
    """Seconds until the loop's clock is at a multiple of the period, at least half of one.

    What is done now and then is so done in one wake-up: each takes a quarter of a millisecond of a core that
    slept."""
    left = period_s - asyncio.get_running_loop().time() % period_s
    return left if left > period_s / 2 else left + period_s


async def _failure(engine: Working, exit_after_stall_s: float | None) -> str:
    """Returns the explanation once the engine has failed, or has been stalled for too long."""
    clock = asyncio.get_running_loop().time
    stalled_since: float | None = None
    while True:
        state, explanation = engine.health()
        if state == "failed":
            return explanation
        if state != "stalled":
            stalled_since = None
        elif stalled_since is None:
            stalled_since = clock()
            logger.error("the engine has stalled: %s", explanation)
        if (
            stalled_since is not None
            and exit_after_stall_s is not None
            and clock() - stalled_since >= exit_after_stall_s
        ):
            return f"stalled for more than {exit_after_stall_s:g} s (server.exit_after_stall_s)"
        await asyncio.sleep(_until_next(HEALTH_POLL_S))
