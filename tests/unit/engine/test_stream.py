"""Waiting for payloads: order, cancellation, wake-ups, errors."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator

import pytest

from llgtrt._native import Unsent
from llgtrt.engine import (
    AsyncEngine,
    EngineFailedError,
    GrammarError,
    OverloadedError,
    Payload,
    ShuttingDownError,
    Stream,
    StreamCancelledError,
    new_error,
)
from llgtrt.engine.stream import MOST_PIPED
from support.fake_engine import FakeChoice, FakeDelta, FakeHandle, FakeNativeEngine, fake_engine, settle


@pytest.fixture
async def native() -> AsyncIterator[FakeNativeEngine]:
    fake = FakeNativeEngine()
    yield fake
    fake.close()


@pytest.fixture
async def engine(native: FakeNativeEngine) -> AsyncIterator[AsyncEngine]:
    client = fake_engine(native)
    yield client
    await client.shutdown()


def submit(engine: AsyncEngine, native: FakeNativeEngine) -> tuple[Stream, FakeHandle]:
    stream = engine.submit(None, engine.reserve(1))  # type: ignore[arg-type]
    return stream, native.handles[-1]


async def test_ready_payloads_are_taken_without_waiting(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    stream, handle = submit(engine, native)
    handle.put(b"one")
    handle.put(b"two", last=True)
    assert await stream.next() == b"one"
    before = stream.finished
    assert await stream.next() == b"two"
    assert (before, stream.finished) == (False, True)
    assert native.drains == 0


async def test_a_waiting_stream_is_woken_by_one_drain_for_all(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    pairs = [submit(engine, native) for _ in range(10)]
    waits = [asyncio.ensure_future(stream.next()) for stream, _ in pairs]
    await settle()
    for number, (_, handle) in enumerate(pairs):
        handle.put(b"%d" % number)
    assert await asyncio.gather(*waits) == [b"%d" % number for number in range(10)]
    assert native.drains == 1


async def test_wake_returns_none_and_loses_nothing(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    stream.wake()
    # The core answers before the consumer has run.
    handle.put(b"text", last=True)
    engine._drain()
    assert await wait is None
    assert await stream.next() == b"text"
    assert stream.finished


async def test_wake_without_a_waiter_does_nothing(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    stream.wake()
    handle.put(b"text")
    assert await stream.next() == b"text"


class FakeOutlet:
    """A connection that takes so many parts, and has a socket or none."""

    def __init__(self, takes: int = 100, socket: int | None = None) -> None:
        self.written: list[bytes] = []
        self.fd = socket
        self._takes = takes

    def write(self, body: bytes) -> bool:
        self._takes -= 1
        if self._takes >= 0:
            self.written.append(body)
        return self._takes >= 0

    def write_rest(self, data: bytes) -> None:
        self.written.append(b"rest " + data)

    def socket(self) -> int | None:
        return self.fd


async def test_an_outlet_gets_bytes_without_waking_the_consumer(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet()
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    handle.put(b"1")
    handle.put(b"2")
    await settle()
    assert outlet.written == [b"1", b"2"]
    assert not wait.done()
    handle.put(b"3")
    await settle()
    assert outlet.written == [b"1", b"2", b"3"]
    handle.put(b"4", last=True)
    assert await wait == b"4"
    assert stream.finished
    assert handle.written == []


async def test_an_answer_that_comes_faster_than_it_is_written_does_not_keep_the_loop(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet()
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    texts = [str(number).encode() for number in range(50)]
    for text in texts:
        handle.put(text)
    taken = [await wait]
    assert len(outlet.written) == MOST_PIPED
    while len(taken) + len(outlet.written) < len(texts):
        taken.append(await stream.next())
    assert outlet.written + taken == texts


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_stream_that_ended_lets_its_outlet_go(
    engine: AsyncEngine, native: FakeNativeEngine, cancelled: bool
) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet()
    held = weakref.ref(outlet)
    stream.pipe(outlet)
    del outlet
    wait = asyncio.ensure_future(stream.next())
    await settle()
    if cancelled:
        stream.cancel()
    else:
        handle.put(b"1", last=True)
    await asyncio.gather(wait, return_exceptions=True)
    assert stream.finished
    assert held() is None


async def test_what_an_outlet_refuses_comes_from_next(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet(takes=1)
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    handle.put(b"1")
    handle.put(b"2")
    handle.put(b"3")
    assert await wait == b"2"
    # Nothing goes to the outlet while the consumer does not wait.
    assert outlet.written == [b"1"]
    assert await stream.next() == b"3"


async def test_the_core_writes_to_a_socket_at_rest(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet(socket=7)
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    handle.put(b"1")
    await settle()
    handle.taken_by_socket = 3
    handle.put(b"second")
    await settle()
    # Something waits in the transport now.
    outlet.fd = None
    handle.put(b"3")
    await settle()
    assert handle.written == [(7, b"1"), (7, b"second")]
    assert outlet.written == [b"rest ond", b"3"]
    stream.stop_writing()
    assert handle.stops == 1
    handle.put(b"4", last=True)
    assert await wait == b"4"


async def test_what_the_core_could_not_write_is_written_before_what_follows(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet()
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    handle.put(Unsent(b"end"))
    handle.put(b"2")
    await settle()
    assert outlet.written == [b"rest end", b"2"]
    # Nobody waits: it is the consumer that asks for what follows.
    stream.wake()
    handle.put(Unsent(b"more"))
    assert await wait is None
    await settle()
    assert outlet.written == [b"rest end", b"2", b"rest more"]
    handle.put(b"3", last=True)
    assert await stream.next() == b"3"


@pytest.mark.parametrize("way", ["something else is written", "the request fails"])
async def test_what_the_core_could_not_write_comes_before_anything_else(
    engine: AsyncEngine, native: FakeNativeEngine, way: str
) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet(socket=7)
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    handle.unsent = b"end"
    if way == "the request fails":
        stream.fail(new_error(GrammarError, "late"))
        with pytest.raises(GrammarError):
            await wait
    else:
        stream.wake()
        assert await wait is None
        stream.stop_writing()
    assert outlet.written == [b"rest end"]
    stream.cancel()


async def test_without_descriptors_python_writes(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet(socket=7)
    handle.taken_by_socket = -1
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    handle.put(b"1")
    await settle()
    handle.taken_by_socket = 100
    handle.put(b"2")
    await settle()
    assert outlet.written == [b"1", b"2"]
    assert handle.written == []
    stream.cancel()
    with pytest.raises(StreamCancelledError):
        await wait


async def test_an_outlet_does_not_get_deltas(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    outlet = FakeOutlet()
    stream.pipe(outlet)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    delta = FakeDelta(error=new_error(GrammarError, "bad"))
    handle.put(delta, last=True)
    payload: object = await wait
    assert payload is delta
    assert outlet.written == []


async def test_cancel_ends_the_request_and_its_waiter(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    stream.cancel()
    stream.cancel()
    with pytest.raises(StreamCancelledError):
        await wait
    assert handle.cancelled
    assert stream.finished
    assert not engine._streams
    with pytest.raises(StreamCancelledError):
        await stream.next()


async def test_cancelling_the_waiting_task_cancels_the_request(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    stream, handle = submit(engine, native)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert handle.cancelled
    assert not engine._streams


async def test_a_finished_stream_is_forgotten(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    handle.put(b"", last=True)
    await stream.next()
    assert not engine._streams
    stream.cancel()
    assert not handle.cancelled


async def test_result_gives_the_only_delta(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    delta = FakeDelta([FakeChoice(0, "text")])
    handle.put(delta, last=True)
    assert await stream.result() is delta  # type: ignore[comparison-overlap]


async def test_result_raises_the_error_of_the_request(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    handle.put(FakeDelta(error=new_error(GrammarError, "bad", "regex")), last=True)
    with pytest.raises(GrammarError) as caught:
        await stream.result()
    assert (caught.value.kind, caught.value.message, caught.value.param) == ("grammar", "bad", "regex")


async def test_result_goes_on_waiting_after_a_wake(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    wait = asyncio.ensure_future(stream.result())
    await settle()
    stream.wake()
    await settle()
    delta = FakeDelta()
    handle.put(delta, last=True)
    assert await wait is delta  # type: ignore[comparison-overlap]


async def test_result_refuses_bytes(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    handle.put(b"data: {}", last=True)
    with pytest.raises(TypeError):
        await stream.result()


async def test_abort_gives_every_consumer_the_error(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    waiting, _ = submit(engine, native)
    idle, handle = submit(engine, native)
    wait = asyncio.ensure_future(waiting.next())
    await settle()
    engine.abort(new_error(ShuttingDownError, "bye"))
    with pytest.raises(ShuttingDownError):
        await wait
    with pytest.raises(ShuttingDownError):
        await idle.next()
    assert handle.cancelled


async def test_a_drain_that_fails_ends_all_streams(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    wait = asyncio.ensure_future(stream.next())
    await settle()
    native.broken = RuntimeError("poisoned")
    handle.put(b"text")
    with pytest.raises(EngineFailedError):
        await wait
    # Nothing would be answered any more: it must not look ready, and must not take requests.
    assert engine.health()[0] == "failed"
    with pytest.raises(EngineFailedError):
        engine.reserve(1)


async def test_overload_is_raised_by_reserve(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    native.places = 2
    with pytest.raises(OverloadedError):
        engine.reserve(3)


async def test_model_info_ignores_members_it_does_not_know(engine: AsyncEngine) -> None:
    assert engine.model_info.vocab_size == 100
    assert engine.model_info.special_tokens == ("<|end|>",)


async def test_shutdown_cancels_and_stops(native: FakeNativeEngine) -> None:
    engine = fake_engine(native)
    stream, handle = submit(engine, native)
    await engine.shutdown()
    assert handle.cancelled
    assert stream.finished
    assert native.stopped


class Watch:
    """A tap that notes what it sees."""

    def __init__(self, fails: bool = False) -> None:
        self.seen: list[tuple[object, bool]] = []
        self.ends: list[Exception | None] = []
        self._fails = fails

    async def passes(self, payload: Payload, last: bool) -> Payload:
        await asyncio.sleep(0)
        self.seen.append((payload, last))
        if self._fails:
            raise ValueError("no")
        return b"other"

    def ended(self, error: Exception | None) -> None:
        self.ends.append(error)


async def test_a_tap_sees_every_payload_and_gives_another(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    stream, handle = submit(engine, native)
    tap = Watch()
    stream.watch(tap)
    handle.put(b"a")
    assert await stream.next() == b"other"
    wait = asyncio.ensure_future(stream.next())
    await settle()
    stream.wake()
    assert await wait is None, "that is no payload"
    handle.put(b"b", last=True)
    assert await stream.next() == b"other"
    assert tap.seen == [(b"a", False), (b"b", True)]
    stream.cancel()
    assert tap.ends == [], "it had its last payload"


async def test_a_tap_hears_of_an_end_before_the_last_payload(
    engine: AsyncEngine, native: FakeNativeEngine
) -> None:
    cancelled, failed = Watch(), Watch()
    stream, _ = submit(engine, native)
    stream.watch(cancelled)
    stream.cancel()
    stream.cancel()
    assert cancelled.ends == [None]
    stream, _ = submit(engine, native)
    stream.watch(failed)
    error = new_error(ShuttingDownError, "bye")
    stream.fail(error)
    assert failed.ends == [error]


async def test_the_consumer_sees_what_a_tap_raises(engine: AsyncEngine, native: FakeNativeEngine) -> None:
    stream, handle = submit(engine, native)
    stream.watch(Watch(fails=True))
    handle.put(b"a")
    with pytest.raises(ValueError, match="no"):
        await stream.next()
