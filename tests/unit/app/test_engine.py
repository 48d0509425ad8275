"""An engine that is loaded ahead of all that works with it."""

from __future__ import annotations

import pytest

from llgtrt import _native
from llgtrt.app.engine import EngineAhead, stop_engine
from llgtrt.config import Config, Settings
from llgtrt.engine import AsyncEngine, ConfigurationError

SETTINGS = Settings(config=Config(), backend="sim")


async def test_it_is_loaded_before_anybody_asks_and_taken_once() -> None:
    ahead = EngineAhead(SETTINGS)
    engine = await ahead.take()
    assert engine.model_info.backend == "sim"
    # It is its taker's to end.
    await ahead.drop()
    assert engine.health()[0] == "ready"
    assert await stop_engine(engine)


async def test_it_ends_if_nobody_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[AsyncEngine] = []
    shutdown = AsyncEngine.shutdown

    async def noted(engine: AsyncEngine) -> None:
        await shutdown(engine)
        ended.append(engine)

    monkeypatch.setattr(AsyncEngine, "shutdown", noted)
    await EngineAhead(SETTINGS).drop()
    assert len(ended) == 1


async def test_what_is_wrong_with_it_is_told_to_its_taker_and_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_config: str, _model: object) -> None:
        raise ConfigurationError("no such model")

    monkeypatch.setattr(_native, "Engine", fail)
    with pytest.raises(ConfigurationError, match="no such model"):
        await EngineAhead(SETTINGS).take()
    await EngineAhead(SETTINGS).drop()
