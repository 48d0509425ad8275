"""Chunks pushed to the runtime: what its sender may do to the worker, which is little."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from llgtrt.dynamo.egress import MOST_UNSENT
from llgtrt.dynamo.worker import Worker
from llgtrt.engine import AsyncEngine, EngineFailedError, new_error
from llgtrt.serving.errors import RequestError
from support.core import engine_config
from support.dynamo import Context, answer, collect, request, text_of, worker

PATIENCE_S = 60


class Sender:
    """Dynamo's ``ResponseSender``: ``send`` blocks at the chunk with the given token until there is room."""

    def __init__(self, blocked_at: int | None = None) -> None:
        self.chunks: list[dict[str, Any]] = []
        self.room = threading.Event()
        self.blocked = threading.Event()
        self.gone = False
        self._blocked_at = blocked_at

    @property
    def tokens(self) -> int:
        return sum(len(chunk["token_ids"]) for chunk in self.chunks)

    def send(self, chunk: dict[str, Any]) -> None:
        if self._blocked_at is not None and self.tokens + len(chunk["token_ids"]) >= self._blocked_at:
            self.blocked.set()
            assert self.room.wait(PATIENCE_S)
        if self.gone:
            raise RuntimeError("response stream is closed; the consumer dropped the response stream")
        self.chunks.append(chunk)


@pytest.fixture
async def engine() -> AsyncIterator[AsyncEngine]:
    loaded = await AsyncEngine.load(engine_config(runtime={"max_seq_len": 1024}))
    yield loaded
    await loaded.shutdown()


@pytest.fixture
async def one(engine: AsyncEngine) -> AsyncIterator[Worker]:
    made = worker(engine)
    yield made
    made.close()
    while any(thread.name == "llgtrt-push" for thread in threading.enumerate()):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def push(one: Worker, asked: dict[str, Any], sender: Sender, context: Context | None = None) -> None:
    """Runs a request as Dynamo does: the generator is asked once, and has nothing."""
    assert await collect(one.generate(asked, context or Context(), response_sender=sender)) == []


def seeded(seed: int, **members: Any) -> dict[str, Any]:
    return request(sampling_options__seed=seed, stop_conditions__ignore_eos=True, **members)


def facts_of(chunks: list[dict[str, Any]]) -> tuple[str, list[int], str, dict[str, Any]]:
    tokens = [token for chunk in chunks for token in chunk["token_ids"]]
    return text_of(chunks), tokens, chunks[-1]["finish_reason"], chunks[-1]["completion_usage"]


async def test_what_is_pushed_is_what_would_be_yielded(engine: AsyncEngine, one: Worker) -> None:
    yielded = await answer(one, seeded(1, output_options__logprobs=2))
    sender = Sender()
    await push(one, seeded(1, output_options__logprobs=2), sender)
    # The second finds the prompt where the first left it.
    *pushed_facts, pushed_usage = facts_of(sender.chunks)
    *facts, usage = facts_of(yielded)
    assert pushed_facts == facts
    assert pushed_usage["total_tokens"] == usage["total_tokens"] == 205
    flat = [entry for chunk in sender.chunks for entry in chunk.get("log_probs", ())]
    assert flat == [entry for chunk in yielded for entry in chunk.get("log_probs", ())]
    assert one.requests == 0
    assert engine.active_requests() == 0


@pytest.mark.parametrize("blocked_at", [1, 20, 200])
async def test_a_client_that_does_not_read_stops_nobody_else(
    engine: AsyncEngine, one: Worker, blocked_at: int
) -> None:
    alone = [facts_of(await answer(one, seeded(seed))) for seed in range(8)]
    stuck = Sender(blocked_at)
    waiting = asyncio.ensure_future(push(one, seeded(0), stuck))
    others = [Sender() for _ in range(1, 8)]
    await asyncio.gather(*(push(one, seeded(seed), other) for seed, other in enumerate(others, 1)))
    assert [facts_of(other.chunks)[:3] for other in others] == [facts[:3] for facts in alone[1:]]
    # A second client of the kind, and others behind it.
    also_stuck = Sender(blocked_at)
    also_waiting = asyncio.ensure_future(push(one, seeded(0), also_stuck))
    last = Sender()
    await push(one, seeded(1), last)
    assert facts_of(last.chunks)[:3] == alone[1][:3]
    for sender, task in ((stuck, waiting), (also_stuck, also_waiting)):
        assert not task.done()
        sender.room.set()
        await task
        assert facts_of(sender.chunks)[:3] == alone[0][:3]
    assert one.requests == 0
    assert engine.active_requests() == 0


@pytest.mark.parametrize("blocked_at", [1, 3])
async def test_what_a_slow_client_has_not_read_is_merged(
    engine: AsyncEngine, one: Worker, blocked_at: int
) -> None:
    sender = Sender(blocked_at)
    waiting = asyncio.ensure_future(push(one, seeded(3, stop_conditions__max_tokens=900), sender))
    # Until the engine has nothing left to do.
    while "llgtrt_generation_tokens_total 900\n" not in engine.metrics():  # noqa: ASYNC110 (the core tells nobody)
        await asyncio.sleep(0)
    sender.room.set()
    await waiting
    # Those that may wait, the one it was stuck in, one that was ready, and the rest.
    assert len(sender.chunks) <= blocked_at + MOST_UNSENT + 3
    assert sender.tokens == 900


@pytest.mark.parametrize("blocked_at", [1, 20])
async def test_a_reader_that_has_gone_frees_the_place(
    engine: AsyncEngine, one: Worker, blocked_at: int
) -> None:
    sender = Sender(blocked_at)
    endless = seeded(1, stop_conditions__max_tokens=1000)
    waiting = asyncio.ensure_future(push(one, endless, sender))
    assert await asyncio.to_thread(sender.blocked.wait, PATIENCE_S)
    sender.gone = True
    sender.room.set()
    await waiting
    assert sender.tokens < blocked_at
    assert one.requests == 0
    assert engine.active_requests() == 0


async def test_a_client_that_leaves_is_not_waited_for(engine: AsyncEngine, one: Worker) -> None:
    sender, context = Sender(1), Context()
    waiting = asyncio.ensure_future(push(one, seeded(1), sender, context))
    assert await asyncio.to_thread(sender.blocked.wait, PATIENCE_S)
    context.stopped.set_result(True)
    await waiting
    assert one.requests == 0
    assert engine.active_requests() == 0
    # The thread is still in the other's chunk.
    other = Sender()
    await push(one, seeded(2), other)
    assert facts_of(other.chunks)[:3] == facts_of(await answer(one, seeded(2)))[:3]
    sender.room.set()


async def test_what_cannot_be_sent_is_raised(engine: AsyncEngine, one: Worker) -> None:
    class Refusing(Sender):
        def send(self, chunk: dict[str, Any]) -> None:
            raise ValueError("critical error: invalid response object")

    with pytest.raises(ValueError, match="invalid response object"):
        await push(one, seeded(1), Refusing())
    assert one.requests == 0
    assert engine.active_requests() == 0


async def test_a_refused_request_sends_nothing(one: Worker) -> None:
    sender = Sender()
    with pytest.raises(RequestError):
        await push(one, {"token_ids": [5, 260]}, sender)
    assert sender.chunks == []


async def test_an_error_comes_after_what_was_generated_before() -> None:
    # Its answer would take a minute.
    slow = await AsyncEngine.load(engine_config(sim={"step_us": 60_000}))
    one = worker(slow)
    try:
        sender = Sender(1)
        waiting = asyncio.ensure_future(push(one, seeded(1, stop_conditions__max_tokens=1000), sender))
        assert await asyncio.to_thread(sender.blocked.wait, PATIENCE_S)
        slow.abort(new_error(EngineFailedError, "The engine failed."))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        sender.room.set()
        with pytest.raises(EngineFailedError):
            await waiting
        assert sender.tokens >= 1
        assert all("finish_reason" not in chunk for chunk in sender.chunks)
        assert one.requests == 0
    finally:
        one.close()
        await slow.shutdown()
