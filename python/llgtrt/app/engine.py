"""The engine of a model: loading it, also ahead of all that works with it, and its end."""

from __future__ import annotations

import asyncio
import contextlib

from llgtrt.config import ConfigError, Settings, native_config
from llgtrt.engine import AsyncEngine, KvEventSink, LlgtrtError

ENGINE_STOP_S = 4.0
"""An engine that failed and does not stop must not keep the process: it has to be gone within 10 s."""


async def load_engine(settings: Settings, model: object = None) -> AsyncEngine:
    """Loads a model's engine on another thread.

    Args:
        settings: the model's own.
        model: gives rows of logits, where the engine is one in Python.

    Raises:
        ConfigError, LlgtrtError: the model or the configuration is unusable.
    """
    sink = _kv_event_sink(settings)
    try:
        engine = await AsyncEngine.load(native_config(settings), model)
    except BaseException:
        if sink is not None:
            sink.close()
        raise
    if sink is not None:
        engine.publish_kv_events(sink)
    return engine


async def stop_engine(engine: AsyncEngine) -> bool:
    """Ends an engine; false if a thread of it hangs in native code, where nothing can end it."""
    try:
        await asyncio.wait_for(engine.shutdown(), ENGINE_STOP_S)
    except asyncio.TimeoutError:
        return False
    return True


class EngineAhead:
    """An engine that is loaded while the process imports what serves it."""

    def __init__(self, settings: Settings) -> None:
        self._loading: asyncio.Task[AsyncEngine] | None = asyncio.ensure_future(load_engine(settings))

    async def take(self) -> AsyncEngine:
        """The engine, which is the caller's from now on.

        Raises:
            ConfigError, LlgtrtError: the model or the configuration is unusable.
        """
        assert self._loading is not None
        loading, self._loading = self._loading, None
        return await loading

    async def drop(self) -> None:
        """Ends the engine, unless somebody has taken it."""
        if self._loading is not None:
            with contextlib.suppress(ConfigError, LlgtrtError):
                await stop_engine(await self.take())


def _kv_event_sink(settings: Settings) -> KvEventSink | None:
    """What publishes the events of the prefix cache, if anybody asks for them. Made before a model is loaded.

    Raises:
        ConfigError: an endpoint cannot be used, or the extra is missing.
    """
    section = settings.config.kv_events
    if section.endpoint is None:
        return None
    # The extra's packages are loaded only where they are needed.
    from llgtrt.kv_events import ZmqPublisher

    return ZmqPublisher(section)
