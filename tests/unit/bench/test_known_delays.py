"""A server that follows a script by a clock of its own, which is the client's too: every figure is known."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from llgtrt.bench.client import read_answer, run
from llgtrt.bench.figures import Slo, figures
from llgtrt.bench.workload import Ask

SCRIPTS = [
    [0.2 + 0.1 * request, *(0.01 * (event + 1) * (request + 1) for event in range(4)), 0.05]
    for request in range(10)
]
"""Of each request: seconds before its first text, before each of the next four, before its last bytes."""


class Clock:
    """Time that passes only where the server says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looked: asyncio.Queue[None] = asyncio.Queue()

    def __call__(self) -> float:
        self.looked.put_nowait(None)
        return self.now


class ScriptedServer:
    """Answers request after request as the script says.

    Nothing is sent before the client has noted the time of what was sent before: it asks the clock once for
    each piece, so that its look at the clock says that the piece has come.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scripts = iter(SCRIPTS)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One stream."""
        await request.read()
        before, *gaps, last = next(self._scripts)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        # The head of an answer, and events without text, are no first token.
        await self._send(response, before / 2, chunk(""))
        await self._send(response, before / 2, chunk("a"))
        for gap in gaps:
            await self._send(response, gap, chunk("b"))
        usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1 + len(gaps)}}
        await self._send(response, last, chunk("", "length") + event(usage) + b"data: [DONE]\n\n")
        return response

    async def _send(self, response: web.StreamResponse, after_s: float, data: bytes) -> None:
        while not self._clock.looked.empty():
            self._clock.looked.get_nowait()
        self._clock.now += after_s
        await response.write(data)
        await asyncio.wait_for(self._clock.looked.get(), 30)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


@pytest.fixture
async def scripted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    clock = Clock()
    monkeypatch.setattr("llgtrt.bench.client.time.perf_counter", clock)
    application = web.Application()
    application.router.add_post("/v1/chat/completions", ScriptedServer(clock).answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}/v1/chat/completions"
    await runner.cleanup()


def quantile(values: list[float], share: float) -> float:
    """Python's own, as another judge than numpy."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


async def test_known_delays_come_out_as_they_are(scripted: str) -> None:
    bodies: list[dict[str, Any]] = [{"messages": []} for _ in SCRIPTS]
    exchanges = await run(scripted, bodies, concurrency=1, timeout_s=60)
    answers = [read_answer(one) for one in exchanges]
    result = figures([Ask("a")] * len(answers), answers, [Slo("ttft", 650), Slo("tpot", 1000)])
    assert result["errors"] == {}
    ttft = [script[0] for script in SCRIPTS]
    gaps = [gap for script in SCRIPTS for gap in script[1:-1]]
    e2e = [sum(script) for script in SCRIPTS]
    tpot = [sum(script[1:]) / 4 for script in SCRIPTS]
    known: dict[str, list[float]] = {"ttft_ms": ttft, "gap_ms": gaps, "e2e_ms": e2e, "tpot_ms": tpot}
    for name, seconds in known.items():
        values = [value * 1000 for value in seconds]
        expected = {
            "mean": statistics.fmean(values),
            **{f"p{at}": quantile(values, at / 100) for at in (50, 90, 95, 99)},
            "max": max(values),
        }
        assert result[name] == pytest.approx(expected, abs=1e-6), name
    duration = sum(e2e)
    assert result["duration_s"] == pytest.approx(duration)
    assert result["requests_per_s"] == pytest.approx(10 / duration)
    assert result["output_tokens_per_s"] == pytest.approx(50 / duration)
    assert result["tokens_per_s"] == pytest.approx((50 + 70) / duration)
    # 0.2, 0.3, 0.4, 0.5 and 0.6 s begin in time.
    assert result["goodput"]["requests"] == 5
