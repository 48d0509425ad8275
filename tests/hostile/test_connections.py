"""Clients that are slow, leave half way, come by the hundred or do not speak HTTP."""

from __future__ import annotations

import json
import select
import socket
from contextlib import ExitStack

import pytest

from support.api import CHAT, chat
from support.hostile.figures import record
from support.hostile.form import by_form
from support.hostile.watch import watched
from support.hostile.wire import answer_of, connect, open_request, request_bytes, rest_of
from support.server import ServerProcess, wait_until
from support.sim import StartServer

CLIENTS = by_form(100, 500)
BODY = json.dumps(chat(max_tokens=3)).encode()
WHOLE = request_bytes(CHAT, BODY)
SLOW = 'llgtrt_http_disconnects_total{reason="slow"}'


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        ("first line", WHOLE[:20]),
        ("header", WHOLE[:60]),
        ("body", WHOLE[:-10]),
        ("gap before the body", WHOLE[: -len(BODY)]),
    ],
)
def test_a_request_that_stops_half_way(impatient: ServerProcess, part: str, sent: bytes) -> None:
    with watched(impatient, f"requests that stop in the {part}"), ExitStack() as stack:
        clients = [stack.enter_context(connect(impatient)) for _ in range(CLIENTS)]
        for client in clients:
            client.sendall(sent)
        for client in clients:
            assert answer_of(client)[0] == 408
            assert rest_of(client) == b""


def test_a_head_that_comes_byte_by_byte(impatient: ServerProcess) -> None:
    """Every byte is in time; the whole is not."""
    with watched(impatient, "heads byte by byte"), connect(impatient) as client:
        sent = 0
        while not select.select([client], [], [], 0.02)[0]:
            client.sendall(b"POST / HTTP/1.1\r\nx: "[sent : sent + 1] or b"y")
            sent += 1
        assert answer_of(client)[0] == 408


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("part", ["half", "whole"])
def test_half_closed_connections(impatient: ServerProcess, part: str, stream: bool) -> None:
    """A client that closes its side has left: what runs for it is cancelled, and the connection closed."""
    body = json.dumps(chat(max_tokens=2000, ignore_eos=True, stream=stream)).encode()
    data = request_bytes(CHAT, body)
    with watched(impatient, f"half-closed, {part} requests, stream {stream}"), ExitStack() as stack:
        clients = [stack.enter_context(connect(impatient)) for _ in range(CLIENTS // 2)]
        for client in clients:
            client.sendall(data if part == "whole" else data[:-5])
            client.shutdown(socket.SHUT_WR)
        for client in clients:
            assert b"[DONE]" not in rest_of(client)


def test_a_storm_of_connections(attacked: ServerProcess) -> None:
    """All connect before any asks; all are answered, also on the second request of a connection."""
    count = by_form(300, 1500)
    with watched(attacked, f"{count} connections at once"), ExitStack() as stack:
        clients = [stack.enter_context(connect(attacked)) for _ in range(count)]
        for _ in range(2):
            for client in clients:
                client.sendall(WHOLE)
            statuses = [answer_of(client)[0] for client in clients]
            assert set(statuses) == {200}


def test_requests_in_one_packet_are_answered_in_order(attacked: ServerProcess) -> None:
    with connect(attacked) as client:
        bodies = [json.dumps(chat(max_tokens=count)).encode() for count in (3, 1, 2)]
        client.sendall(b"".join(request_bytes(CHAT, body) for body in bodies))
        data = b""
        while data.count(b'"completion_tokens":') < 3:
            data += client.recv(65536)
        counts = [part[:1] for part in data.split(b'"completion_tokens":')[1:]]
        assert counts == [b"3", b"1", b"2"]


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x00" * 1000,
    b"\r\n" * 1000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nx\x00y: z\r\n\r\n",
    b"GET / HTTP/1.1\r\n : z\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: \xff\xfe\r\nconnection: close\r\n\r\n",
]


def test_what_is_not_http(impatient: ServerProcess) -> None:
    with watched(impatient, "what is not HTTP"):
        for data in GARBAGE:
            with connect(impatient) as client:
                try:
                    client.sendall(data)
                except ConnectionError:
                    continue  # It was refused before it was over.
                answer = rest_of(client)
                assert not answer or answer.startswith(b"HTTP/1.1 4"), (data[:60], answer[:200])


def test_readers_that_stall(start_server: StartServer) -> None:
    count = by_form(8, 100)
    server = start_server(
        runtime={"max_batch_size": 16, "max_seq_len": 100_000, "max_queue_size": 2048},
        sim={"step_us": 100},
        server={"write_timeout_s": 0.5, "ping_interval_s": 0.1, "log_requests": False},
    )
    body = chat(stream=True, ignore_eos=True, logprobs=True, top_logprobs=20, max_tokens=60_000)
    with watched(server, f"{count} readers that stall"), ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            # A small window: the kernel would take a minute of an answer by itself.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(request_bytes(CHAT, json.dumps(body).encode()))
        wait_until(lambda: server.metric(SLOW) >= count, "all are dropped", 100)
    record("readers that stall", f"{count} dropped")


def test_an_answer_to_nobody(impatient: ServerProcess) -> None:
    """Clients that reset the connection while their answer is written."""
    body = chat(stream=True, ignore_eos=True, max_tokens=3000)
    with watched(impatient, "resets"):
        for _ in range(CLIENTS // 4):
            with open_request(impatient, CHAT, body) as client:
                client.recv(1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
