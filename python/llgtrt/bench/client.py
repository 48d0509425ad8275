"""Sends requests and keeps every piece of an answer with the time of its arrival; reads them afterwards.

While requests run nothing is parsed: the generator shares its machine with the server often enough.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

MOST_ERROR_CHARS = 300


@dataclass(slots=True)
class Exchange:
    """One request as it went over the wire. Times are in seconds of one clock.

    Attributes:
        due_s: when it was to be sent.
        start_s: when it was sent.
        end_s: when the last byte came, or it failed.
        status: HTTP status; 0: none came.
        pieces: bytes of the answer's body in order, each with its arrival.
        failure: what went wrong on the way, if something did.
    """

    due_s: float
    start_s: float = 0.0
    end_s: float = 0.0
    status: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What an exchange gave.

    Attributes:
        texts_s: arrival of each event that held text.
        text: all of it.
        finish_reason: why it ended, where the server says.
        input_tokens, output_tokens: as the server counts them; None: it does not say.
        error: what went wrong, in one line.
    """

    start_s: float
    end_s: float
    texts_s: tuple[float, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None

    @property
    def ttft_s(self) -> float | None:
        """From sending the request to the first text."""
        return self.texts_s[0] - self.start_s if self.texts_s else None

    @property
    def gaps_s(self) -> list[float]:
        """Between events that held text."""
        return [after - before for before, after in zip(self.texts_s, self.texts_s[1:], strict=False)]

    @property
    def e2e_s(self) -> float:
        """From sending the request to the last byte."""
        return self.end_s - self.start_s

    @property
    def tokens(self) -> int:
        """Output tokens; events with text where the server does not count."""
        return len(self.texts_s) if self.output_tokens is None else self.output_tokens

    @property
    def tpot_s(self) -> float | None:
        """From the first text to the end, per token after the first."""
        if not self.texts_s or self.tokens < 2:
            return None
        return (self.end_s - self.texts_s[0]) / (self.tokens - 1)


async def exchange(
    session: aiohttp.ClientSession, url: str, body: bytes, due_s: float, clock: Callable[[], float]
) -> Exchange:
    """Sends one request and waits for all of its answer. What fails is in the result.

    A server may close a connection that it kept open just when the next request is sent on it. So a request
    whose connection ends before the answer begins is sent once more, as other clients do it, on a connection
    of its own, since all that were kept may be closed; its time goes on.
    """
    one = Exchange(due_s, clock())
    try:
        try:
            await _send(session, url, body, one, clock)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if one.status or isinstance(error, aiohttp.ClientConnectorError):
                raise
            headers, timeout = session.headers, session.timeout
            async with aiohttp.ClientSession(headers=headers, timeout=timeout) as fresh:
                await _send(fresh, url, body, one, clock)
    except asyncio.TimeoutError:
        one.failure = "timeout"
    except (aiohttp.ClientError, OSError) as error:
        one.failure = f"{type(error).__name__}: {error}"[:MOST_ERROR_CHARS]
    one.end_s = clock() if one.failure is not None or not one.pieces else one.pieces[-1][0]
    return one


async def _send(
    session: aiohttp.ClientSession, url: str, body: bytes, one: Exchange, clock: Callable[[], float]
) -> None:
    async with session.post(url, data=body, headers={"content-type": "application/json"}) as response:
        one.status = response.status
        async for piece in response.content.iter_any():
            one.pieces.append((clock(), piece))


async def run(
    url: str,
    bodies: Sequence[dict[str, Any]],
    *,
    due_s: Sequence[float] | None = None,
    concurrency: int | None = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = 600.0,
    on_end: Callable[[Exchange], object] = lambda _: None,
) -> list[Exchange]:
    """Sends all requests and gives their exchanges in the order of the requests.

    Args:
        url: where to.
        bodies: one per request.
        due_s: when each is sent, in seconds from the beginning; None: as soon as ``concurrency`` lets it.
        concurrency: most requests at once; None: no limit.
        headers: of every request.
        timeout_s: longest answer.
        on_end: is called when one has ended.
    """
    clock = time.perf_counter
    encoded = [json.dumps(body).encode() for body in bodies]
    places = asyncio.Semaphore(concurrency or max(len(bodies), 1))
    scheduled = due_s is not None
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
        begin_s = clock()

        async def send(index: int) -> Exchange:
            due = begin_s
            if due_s is not None:
                due += due_s[index]
                await asyncio.sleep(due - clock())
            async with places:
                # Without a schedule a request is due when there is a place for it.
                one = await exchange(session, url, encoded[index], due if scheduled else clock(), clock)
            on_end(one)
            return one

        return await asyncio.gather(*(send(index) for index in range(len(bodies))))


def read_answer(one: Exchange) -> Answer:
    """The answer in an exchange: server-sent events, or one JSON object."""
    raw = b"".join(piece for _, piece in one.pieces)
    if one.failure is not None:
        return Answer(one.start_s, one.end_s, error=one.failure)
    if one.status != 200:
        return Answer(one.start_s, one.end_s, error=f"status {one.status}: {_message(raw)}")
    reader = _Reader()
    for event, at in _events(one.pieces):
        reader.event(event, at)
    error = reader.error
    if error is None and not reader.ended:
        error = "the stream ended early" if raw else "the answer is empty"
    return Answer(
        one.start_s,
        one.end_s,
        tuple(reader.texts_s),
        reader.text,
        reader.finish_reason,
        reader.input_tokens,
        reader.output_tokens,
        error,
    )


class _Reader:
    """Collects what the events of one stream hold, of any of the routes."""

    def __init__(self) -> None:
        self.texts_s: list[float] = []
        self.text = ""
        self.finish_reason: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = None
        self.ended = False

    def event(self, event: bytes, at: float) -> None:
        """Takes one event, which arrived at some time."""
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")
        )
        if not data:
            return
        if data == b"[DONE]":
            self.ended = True
            return
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.error = f"no JSON object: {data[:100]!r}"
        elif value.get("error"):
            self.error = _message(data)
        elif "text_output" in value:
            # Triton's streams end without a mark.
            self.ended = True
            self._add(value["text_output"], at)
            self.finish_reason = value.get("finish_reason") or self.finish_reason
            if isinstance(value.get("num_output_tokens"), int):
                self.output_tokens = (self.output_tokens or 0) + value["num_output_tokens"]
        else:
            for choice in value.get("choices") or ():
                delta = choice.get("delta") or {}
                thoughts = delta.get("reasoning_content") or delta.get("reasoning")
                self._add(delta.get("content") or choice.get("text") or thoughts, at)
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
            usage = value.get("usage")
            if usage:
                self.input_tokens = usage.get("prompt_tokens")
                self.output_tokens = usage.get("completion_tokens")

    def _add(self, text: Any, at: float) -> None:
        if isinstance(text, str) and text:
            self.text += text
            self.texts_s.append(at)


def _events(pieces: Sequence[tuple[float, bytes]]) -> list[tuple[bytes, float]]:
    """The events of a stream, each with the arrival of its last byte."""
    events = []
    pending = b""
    for at, piece in pieces:
        # As a whole: a piece may end between the two characters.
        pending = (pending + piece).replace(b"\r\n", b"\n")
        *complete, pending = pending.split(b"\n\n")
        events += [(event, at) for event in complete]
    if pending.strip():
        events.append((pending, pieces[-1][0]))
    return events


def _message(raw: bytes) -> str:
    """The message of an error object in OpenAI's or Triton's form, or the beginning of what there is."""
    text = raw.decode(errors="replace")
    try:
        error = json.loads(raw)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(str(text).split())[:MOST_ERROR_CHARS]
