"""Clients that leave, in every phase of a request: nothing of theirs stays."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from support.api import CHAT, COMPLETIONS, chat
from support.hostile.figures import record
from support.hostile.form import by_form
from support.hostile.schemas import SCHEMAS
from support.hostile.watch import watched
from support.hostile.wire import connect, open_request, request_bytes
from support.server import ServerProcess, wait_until

COUNT = by_form(12, 90)
"""Clients per phase: with six phases, 540 in the full form."""
SLOTS = 16
LONG: dict[str, Any] = {"ignore_eos": True, "max_tokens": 50_000}

RUNNING = "llgtrt_num_requests_running"
WAITING = "llgtrt_num_requests_waiting"
MISSES = "llgtrt_grammar_cache_misses_total"
LEFT = 'llgtrt_http_disconnects_total{reason="disconnected"}'


def upload(server: ServerProcess, stack: ExitStack) -> None:
    """The body is on its way."""
    for _ in range(COUNT):
        data = request_bytes(CHAT, json.dumps(chat("x" * 100_000)).encode())
        stack.enter_context(connect(server)).sendall(data[: len(data) // 2])


def compiling(server: ServerProcess, stack: ExitStack) -> None:
    """A compile slot works on the grammar, or will."""
    before = server.metric(MISSES)
    schema = SCHEMAS["intersection of patterns"]
    for number in range(COUNT):
        fresh = {**schema, "$comment": f"{before} {number}"}
        stack.enter_context(open_request(server, CHAT, chat(guided_json=fresh, stream=number % 2 == 0)))
    wait_until(lambda: server.metric(MISSES) > before, "a grammar is being compiled")


def queued(server: ServerProcess, stack: ExitStack) -> None:
    """All slots are taken."""
    for _ in range(SLOTS):
        stack.enter_context(open_request(server, CHAT, chat(stream=True, **LONG)))
    wait_until(lambda: server.metric(RUNNING) == SLOTS, "all slots are taken", 60)
    for number in range(COUNT):
        stack.enter_context(open_request(server, CHAT, chat(stream=number % 2 == 0, **LONG)))
    wait_until(lambda: server.metric(WAITING) >= COUNT, "the others wait", 60)


def prefill(server: ServerProcess, stack: ExitStack) -> None:
    """The prompt is being read: 90 000 tokens of it, 64 with each step."""
    for _ in range(COUNT):
        body = {"prompt": "x" * 90_000, "max_tokens": 5}
        stack.enter_context(open_request(server, COMPLETIONS, body))
    wait_until(lambda: server.metric(RUNNING) > 0, "a prompt is read", 60)


def decoding(server: ServerProcess, stack: ExitStack) -> None:
    """Tokens come, and the client waits for all of them."""
    for _ in range(COUNT):
        stack.enter_context(open_request(server, CHAT, chat(guided_regex="[ab]{40000,}", **LONG)))
    wait_until(lambda: server.metric(RUNNING) >= min(COUNT, SLOTS), "tokens come", 60)


def streaming(server: ServerProcess, stack: ExitStack) -> None:
    """The client has read a part."""
    clients = [
        stack.enter_context(open_request(server, CHAT, chat(stream=True, n=1 + number % 3, **LONG)))
        for number in range(COUNT)
    ]
    for client in clients[: SLOTS // 3]:
        assert client.recv(100)


PHASES = {phase.__name__: phase for phase in (upload, compiling, queued, prefill, decoding, streaming)}


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.timeout(600)
def test_clients_that_leave(impatient: ServerProcess, name: str) -> None:
    with watched(impatient, f"{COUNT} clients leave, {name}"):
        before = impatient.metric(LEFT)
        with ExitStack() as stack:
            PHASES[name](impatient, stack)
        if name not in ("upload", "compiling"):
            # An upload is no request yet, and a grammar may be refused before its client has left.
            wait_until(lambda: impatient.metric(LEFT) >= before + COUNT, "all are counted", 60)
        record(f"{COUNT} clients leave, {name}", f"{impatient.metric(LEFT) - before:.0f} cancelled")
