"""What the process does and says at its start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from llgtrt import _native
from llgtrt.api.listen import bind
from llgtrt.app import process
from llgtrt.app.process import _warn_of_open_port
from llgtrt.config import Config, Settings


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "api_key": "k"}, False),
        ({"host": "127.0.0.1"}, False),
    ],
)
def test_a_port_for_everybody_without_a_key_is_warned_of(
    options: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Config.model_validate({"server": {**options, "port": 0}}).server
    listeners = bind(server)
    _warn_of_open_port(server, listeners)
    assert ("every machine that reaches this one may use the server" in caplog.text) is warned
    for listener in listeners:
        listener.close()


async def loads_ahead(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> tuple[bool, bool]:
    """Whether an engine loads while the server is imported, which takes so long, and has begun by the end."""
    loads = threading.Event()
    load = _native.Engine
    beside: list[bool] = []

    def noted(config: str, model: object) -> _native.Engine:
        loads.set()
        return load(config, model)

    def import_server() -> Callable[..., Any]:
        async def serve(*_arguments: Any) -> int:
            return 7

        beside.append(loads.wait(wait_s))
        return serve

    monkeypatch.setattr(_native, "Engine", noted)
    monkeypatch.setattr(process, "_import_server", import_server)
    assert await process._serve(settings, None, [], None) == 7
    return beside[0], loads.is_set()


async def test_the_engine_is_loaded_while_the_server_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(config=Config(), backend="sim")
    assert await loads_ahead(settings, monkeypatch, 30) == (True, True)


async def test_the_operators_code_is_tried_before_the_engine_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Config.model_validate({"py": {"hooks": "hook.py:Hook"}})
    settings = Settings(config=config, backend="sim")
    assert await loads_ahead(settings, monkeypatch, 0) == (False, False)
