"""The end of a process under load: by a signal, by an engine that dies, by one that hangs."""

from __future__ import annotations

import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from llgtrt.api.server import EXIT_ENGINE_FAILED
from support.api import CHAT, chat, error_of
from support.hostile.figures import record
from support.hostile.form import by_form
from support.hostile.schemas import SCHEMAS
from support.hostile.wire import answer_of, connect, open_request, post, request_bytes
from support.server import ServerProcess, wait_until
from support.sim import StartServer

SLOTS = 8
CLIENTS = by_form(32, 128)


def ask(server: ServerProcess, body: dict[str, Any]) -> httpx.Response:
    return post(server, CHAT, body)


def held(server: ServerProcess) -> float:
    return server.metric("llgtrt_num_requests_running") + server.metric("llgtrt_num_requests_waiting")


def accepted(server: ServerProcess) -> float:
    """Sequences that run, wait or have ended."""
    metrics = server.metrics()
    ended = sum(value for name, value in metrics.items() if name.startswith("llgtrt_request_success_total"))
    return metrics["llgtrt_num_requests_running"] + metrics["llgtrt_num_requests_waiting"] + ended


def refuses(server: ServerProcess) -> bool:
    return server.get("/v1/health/ready").status_code == 503


def test_a_signal_under_load(start_server: StartServer) -> None:
    """Who was accepted gets all of the answer, also from the queue; who comes later is sent away."""
    server = start_server(
        runtime={"max_batch_size": SLOTS}, sim={"step_us": 3000}, server={"drain_timeout_s": 100}
    )
    tokens = 200
    with ThreadPoolExecutor(CLIENTS) as pool, ExitStack() as stack:
        bodies = [
            chat(seed=seed, stream=seed % 2 == 0, ignore_eos=True, max_tokens=tokens)
            for seed in range(CLIENTS)
        ]
        answers = [pool.submit(ask, server, body) for body in bodies]
        wait_until(lambda: accepted(server) == CLIENTS, "all are accepted", 60)
        data = request_bytes(CHAT, json.dumps(chat(max_tokens=3)).encode())
        late = stack.enter_context(connect(server))
        late.sendall(data[:-1])
        server.terminate()
        wait_until(lambda: refuses(server), "the server drains")
        late.sendall(data[-1:])
        assert answer_of(late)[0] == 503
        assert error_of(ask(server, chat()), 503)["code"] == "shutting_down"
        assert server.get("/v1/health/live").status_code == 200
        complete = 0
        for body, answer in zip(bodies, answers, strict=True):
            response = answer.result()
            assert response.status_code == 200
            if body["stream"]:
                assert response.text.endswith("data: [DONE]\n\n")
                assert '"finish_reason":"length"' in response.text
                assert '"error"' not in response.text
            else:
                assert response.json()["usage"]["completion_tokens"] == tokens
            complete += 1
    assert server.wait_exit(60) == 0
    assert "Traceback" not in server.output
    record("SIGTERM under load", f"{complete} of {CLIENTS} accepted answers complete")


def last_words(answer: Future[httpx.Response]) -> str:
    """The code of the error that an answer ends with, whichever way it is said."""
    response = answer.result()
    if response.status_code == 200:
        last = response.text.split("\n\n")[-3]
        assert response.text.endswith("data: [DONE]\n\n"), response.text[-200:]
        return str(json.loads(last.removeprefix("data: "))["error"]["code"])
    return str(error_of(response, 503)["code"])


@pytest.mark.parametrize("kind", ["panic", "fail_engine", "hang"])
def test_an_engine_that_dies_or_hangs_under_load(start_server: StartServer, kind: str) -> None:
    """Nobody waits for ever, whether running, queued or still compiling; the process ends by itself."""
    server = start_server(
        runtime={"max_batch_size": SLOTS, "max_seq_len": 100_000, "stall_timeout_ms": 500},
        sim={"step_us": 2000, "faults": [{"kind": kind, "at_step": 5, "prompt_contains": "kill"}]},
        server={"exit_after_stall_s": 0.5},
    )
    long: dict[str, Any] = {"ignore_eos": True, "max_tokens": 90_000}
    bodies = [chat(seed=seed, stream=seed % 2 == 0, **long) for seed in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS + 2) as pool:
        with open_request(server, CHAT, chat(stream=True, **long)):
            answers = [pool.submit(ask, server, body) for body in bodies[: SLOTS - 1]]
            wait_until(lambda: held(server) == SLOTS, "all slots are taken", 60)
            answers.append(pool.submit(ask, server, chat("kill", stream=True, **long)))
            wait_until(lambda: held(server) == SLOTS + 1, "the one that kills is the first to wait", 60)
            answers += [pool.submit(ask, server, body) for body in bodies[SLOTS - 1 :]]
            wait_until(lambda: held(server) == CLIENTS + 2, "the others wait", 60)
            schema = SCHEMAS["intersection of patterns"]
            compiling = pool.submit(ask, server, chat(guided_json=schema, **long))
        # The client of a slot has left: the one that kills takes its place.
        assert {last_words(answer) for answer in answers} == {"engine_failed"}
        assert compiling.result().status_code in (400, 503)
    assert server.wait_exit(30) == EXIT_ENGINE_FAILED
    record(f"engine under load: {kind}", f"{len(answers)} of {len(answers)} ended with an error; exit code 3")


def test_connections_without_a_request_do_not_hold_the_end_up(start_server: StartServer) -> None:
    server = start_server()
    with ExitStack() as stack:
        clients: list[socket.socket] = [stack.enter_context(connect(server)) for _ in range(50)]
        for client in clients[:25]:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 10\r\n")
        server.terminate()
        assert server.wait_exit(30) == 0
