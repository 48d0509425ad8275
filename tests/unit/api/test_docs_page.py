"""The documentation of the API, which anybody may ask for, costs the event loop nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from fastapi.openapi.utils import get_openapi

from llgtrt.api import application
from support.fake_engine import AppFactory


async def test_it_is_made_once_and_on_a_thread(make_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def watched(*arguments: Any, **options: Any) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return get_openapi(*arguments, **options)

    monkeypatch.setattr(application, "get_openapi", watched)
    transport = httpx.ASGITransport(make_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        answers = await asyncio.gather(*(http.get(path) for path in ("/docs", "/openapi.json") * 3))
    assert [answer.status_code for answer in answers] == [200] * 6
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
