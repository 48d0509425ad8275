"""Ten times more than fits: what was accepted is answered in full, the rest is told at once to come back."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from support.api import CHAT, chat, error_of
from support.hostile.figures import record
from support.hostile.form import FULL, by_form
from support.hostile.probe import HealthProbe, percentile
from support.hostile.wire import post
from support.server import ServerProcess, wait_until
from support.sim import StartServer

SLOTS = 4
QUEUE = 4
TOKENS = by_form(150, 1000)
STEP_US = 2000
MOST_ACCEPTED_MS = 2 * TOKENS * STEP_US / 1000 * (SLOTS + QUEUE) / SLOTS
"""The 99th percentile of accepted requests: twice what the last one in the queue needs by itself."""
MOST_REFUSED_MS = 500.0
"""That of refused ones. Both on a machine that does nothing else: asserted in the full form only."""


def ask(server: ServerProcess, number: int) -> tuple[httpx.Response, float]:
    body = chat(seed=number, stream=number % 2 == 0, ignore_eos=True, max_tokens=TOKENS)
    began = time.monotonic()
    response = post(server, CHAT, body)
    return response, (time.monotonic() - began) * 1000


def is_whole(response: httpx.Response) -> bool:
    if response.headers["content-type"].startswith("text/event-stream"):
        return response.text.endswith("data: [DONE]\n\n") and '"finish_reason":"length"' in response.text
    answer = json.loads(response.content)
    return bool(answer["usage"]["completion_tokens"] == TOKENS)


def test_ten_times_more_than_fits(start_server: StartServer) -> None:
    server = start_server(
        runtime={"max_batch_size": SLOTS, "max_queue_size": QUEUE}, sim={"step_us": STEP_US}
    )
    count = 10 * (SLOTS + QUEUE)
    with HealthProbe(server.port) as probe, ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda number: ask(server, number), range(count)))
    accepted = [(response, ms) for response, ms in answers if response.status_code == 200]
    refused = [(response, ms) for response, ms in answers if response.status_code != 200]
    assert len(accepted) >= SLOTS + QUEUE
    assert refused, "nothing was refused: this was no overload"
    assert all(is_whole(response) for response, _ in accepted)
    for response, _ in refused:
        assert error_of(response, 503)["code"] == "overloaded"
        assert int(response.headers["retry-after"]) > 0
    assert server.metric("llgtrt_requests_rejected_total") == len(refused)
    # A full server is a healthy one.
    probe.check()
    wait_until(server.is_idle, "the places are free")
    record("10x overload: health", str(probe.report))
    accepted_ms, refused_ms = (percentile([ms for _, ms in some], 99) for some in (accepted, refused))
    record(
        "10x overload",
        f"{len(accepted)} accepted, p99 {accepted_ms:.0f} ms; "
        f"{len(refused)} refused, p99 {refused_ms:.0f} ms",
    )
    if FULL:
        assert accepted_ms < MOST_ACCEPTED_MS
        assert refused_ms < MOST_REFUSED_MS


def test_too_many_grammars_are_an_overload_as_well(start_server: StartServer) -> None:
    server = start_server(llguidance={"compile_slots": 1, "compile_queue_size": 2})
    schema = {"type": "string", "allOf": [{"pattern": f"a.{{{20 + i}}}b"} for i in range(12)]}

    def compile_one(number: int) -> httpx.Response:
        body = chat(guided_json={**schema, "$comment": str(number)}, max_tokens=100)
        return post(server, CHAT, body)

    with HealthProbe(server.port) as probe, ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(compile_one, range(30)))
    statuses = [response.status_code for response in answers]
    assert set(statuses) <= {200, 400, 503}
    assert len([status for status in statuses if status != 503]) >= 3
    for response in answers:
        if response.status_code == 503:
            assert "retry-after" in response.headers
    probe.check()
    record("10x overload of grammars", f"{30 - statuses.count(503)} answered, {statuses.count(503)} refused")
