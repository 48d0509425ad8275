"""What is not JSON, JSON that parsers read differently, and texts that have broken programs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from support.api import CHAT, COMPLETIONS
from support.hostile.barrage import Shot, barrage
from support.hostile.figures import record
from support.hostile.form import by_form
from support.hostile.json_texts import NOT_JSON, UNUSUAL_JSON
from support.hostile.naughty import NAUGHTY
from support.hostile.positions import BASES, Position
from support.hostile.verdict import fault_of
from support.hostile.watch import watched
from support.hostile.wire import JSON, TIMEOUT_S, connect, request_bytes, rest_of
from support.server import ServerProcess

BASE = BASES[CHAT]
PLACES = [
    Position(CHAT, (name,), BASE)
    for name in ("messages", "metadata", "guided_json", "stop", "logit_bias", "tools", "max_tokens", "seed")
]


def json_shots() -> Iterator[Shot]:
    for text in [*NOT_JSON, *UNUSUAL_JSON]:
        for path in BASES:
            yield f"{path} {text[:40]!r}", path, text
        for place in PLACES[:: by_form(3, 1)]:
            # The text may end the body early, go on after its end, or be no text at all.
            before, _, after = place.filled('"@"').partition(b'"@"')
            yield f"{place} {text[:40]!r}", CHAT, before + text + after


def naughty_bodies(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield CHAT, {**BASE, "messages": [{"role": "user", "content": text}], "return_expanded_prompt": True}
    yield CHAT, {**BASE, "messages": [{"role": "user", "content": "x", "name": text}], "user": text}
    yield CHAT, {**BASE, "stop": [text], "metadata": {text: text}}
    yield CHAT, {**BASE, "guided_choice": [text, "b"], "max_tokens": 100}
    yield CHAT, {**BASE, "guided_json": {"properties": {text: {"const": text}}, "required": [text]}}
    yield COMPLETIONS, {"prompt": text, "max_tokens": 2, "echo": True, "logprobs": 1}
    yield CHAT, {**BASE, "messages": [{"role": text, "content": "x"}]}
    yield CHAT, {**BASE, "model": text}
    yield CHAT, {**BASE, "guided_regex": text}
    yield CHAT, {**BASE, "guided_grammar": text}
    yield CHAT, {**BASE, "guided_json": text}
    yield CHAT, {**BASE, "tool_choice": text, "tools": [{"type": "function", "function": {"name": text}}]}


def naughty_shots() -> Iterator[Shot]:
    every = by_form(3, 1)
    for row, text in enumerate(NAUGHTY):
        for column, (path, body) in enumerate(naughty_bodies(text)):
            if (row + column) % every == 0:
                yield f"{column} {text[:40]!r}", path, json.dumps(body).encode()


def test_json_texts(attacked: ServerProcess) -> None:
    with watched(attacked, "JSON texts"):
        count, faults = barrage(attacked, json_shots())
    record("JSON texts", f"{count} requests, {len(faults)} answered wrongly")
    assert not faults, "\n".join(faults)


def test_what_is_not_json_is_never_a_success(attacked: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", attacked.port, timeout=TIMEOUT_S)
    for text in NOT_JSON:
        connection.request("POST", CHAT, text, JSON)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 400, (text, body)
    connection.close()


def test_naughty_texts(attacked: ServerProcess) -> None:
    with watched(attacked, "naughty texts"):
        count, faults = barrage(attacked, naughty_shots())
    record("naughty texts", f"{count} requests, {len(faults)} answered wrongly")
    assert not faults, "\n".join(faults)


def test_naughty_paths_and_headers(attacked: ServerProcess) -> None:
    body = json.dumps(BASE).encode()
    with watched(attacked, "naughty heads"):
        for text in NAUGHTY[:: by_form(4, 1)]:
            connection = http.client.HTTPConnection("127.0.0.1", attacked.port, timeout=TIMEOUT_S)
            connection.request("GET", f"/v1/models/{quote(text, safe='')}?{quote(text)}={quote(text)}")
            response = connection.getresponse()
            fault = fault_of(response.status, response.getheader("content-type", ""), response.read())
            assert fault is None, (text, fault)
            connection.close()
            # Headers as bytes: what a library would refuse to send. The server may close without a word
            # on what is not HTTP, and must not say 5xx.
            raw = text.encode().replace(b"\r\n", b" ")
            for name in (b"x-request-id", b"authorization", b"accept", b"origin", b"connection", b"expect"):
                with connect(attacked) as client:
                    whole = request_bytes(CHAT, body, "connection: close\r\n")
                    client.sendall(whole.replace(b"host:", name + b": " + raw + b"\r\nhost:", 1))
                    assert not rest_of(client).startswith(b"HTTP/1.1 5"), (name, text)
