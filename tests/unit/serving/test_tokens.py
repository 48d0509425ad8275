"""Work with tokens is bounded, also by what nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading

import pytest

from llgtrt.engine import OverloadedError
from llgtrt.serving import RequestError
from llgtrt.serving.tokens import CHARS_PER_TOKEN, LEAST_TOKENS, MAX_WAITING, TokenWork
from support.fake_engine import FakeNativeEngine, fake_engine


async def test_only_so_many_wait() -> None:
    native = FakeNativeEngine()
    work = TokenWork(fake_engine(native))
    go_on = threading.Event()
    try:
        waiting = [asyncio.ensure_future(work.run(go_on.wait)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await work.run(go_on.wait)
        go_on.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [True] * (MAX_WAITING - 1)
        assert await work.run(lambda: 3) == 3
    finally:
        go_on.set()
        native.close()


async def test_a_text_far_beyond_the_context_is_refused() -> None:
    native = FakeNativeEngine()
    work = TokenWork(fake_engine(native))
    most = CHARS_PER_TOKEN * LEAST_TOKENS
    try:
        assert len(await work.encode("x" * most, False)) == most
        with pytest.raises(RequestError) as caught:
            await work.encode("x" * (most + 1), False, "prompt")
        assert caught.value.param == "prompt"
    finally:
        native.close()
