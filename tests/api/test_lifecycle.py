"""Clients that leave, overload, and the end of the process."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from llgtrt.api.server import EXIT_ENGINE_FAILED
from support.api import CHAT, chat, chunks_of, error_of, finish_reasons, ok
from support.server import ServerProcess, free_port, run_llgtrt, wait_until
from support.sim import StartServer

LONG = {"ignore_eos": True, "max_tokens": 3000}


def post(server: ServerProcess, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.base_url + CHAT, json=body, timeout=60)


@contextmanager
def open_request(server: ServerProcess, body: dict[str, Any]) -> Iterator[socket.socket]:
    """Sends a request without waiting for its answer; leaving drops the connection."""
    content = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content)
        yield client


def running(server: ServerProcess) -> float:
    return server.metric("llgtrt_num_requests_running")


def waiting(server: ServerProcess) -> float:
    return server.metric("llgtrt_num_requests_waiting")


def disconnects(server: ServerProcess) -> float:
    return server.metric('llgtrt_http_disconnects_total{reason="disconnected"}')


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["decoding", "prefill", "queue", "immediately"])
def test_p20_a_dropped_connection_frees_its_place(
    slow_server: ServerProcess, phase: str, stream: bool
) -> None:
    server = slow_server
    wait_until(server.is_idle, "the server is idle")
    before = disconnects(server)
    content = "word " * 160 if phase == "prefill" else "Hi"
    body = chat(content, stream=stream, **LONG)
    with ExitStack() as others:
        if phase == "queue":
            for _ in range(2):
                others.enter_context(open_request(server, chat(stream=True, **LONG)))
            wait_until(lambda: running(server) == 2, "both places are taken")
        with open_request(server, body) as client:
            if phase == "queue":
                wait_until(lambda: waiting(server) == 1, "the request waits")
            elif phase == "decoding":
                wait_until(lambda: running(server) == 1, "the request runs")
                if stream:
                    client.recv(100)
            elif phase == "prefill":
                wait_until(lambda: running(server) + waiting(server) == 1, "the request is there")
        if phase == "queue":
            wait_until(lambda: waiting(server) == 0, "the place in the queue is free")
    wait_until(server.is_idle, "the places are free")
    if phase != "immediately":
        wait_until(lambda: disconnects(server) > before, "the client is counted")


def test_p20_100_dropped_connections_leak_nothing(server: ServerProcess) -> None:
    for number in range(100):
        with open_request(server, chat(stream=number % 2 == 0, n=1 + number % 3, **LONG)) as client:
            if number % 4 == 0:
                client.recv(100)
    wait_until(server.is_idle, "all places are free")
    assert ok(httpx.post(server.base_url + CHAT, json=chat()))


def test_p21_overload_is_refused_at_once(slow_server: ServerProcess) -> None:
    server = slow_server
    wait_until(server.is_idle, "the server is idle")
    with ExitStack() as stack:
        for count in range(1, 5):
            stack.enter_context(open_request(server, chat(stream=True, **LONG)))
            wait_until(lambda: running(server) + waiting(server) >= count, "the request is in")  # noqa: B023
        for stream in (False, True):
            response = post(server, chat(stream=stream))
            assert error_of(response, 503)["code"] == "overloaded"
            assert int(response.headers["retry-after"]) > 0
        # A full server is a ready server.
        assert server.get("/v1/health/ready").status_code == 200
    wait_until(server.is_idle, "the places are free")
    assert ok(post(server, chat(max_tokens=2)))


def test_p22_sigterm_drains(start_server: StartServer) -> None:
    server = start_server(sim={"step_us": 20_000})
    with ThreadPoolExecutor(4) as pool:
        bodies = [chat(stream=True, ignore_eos=True, max_tokens=50, seed=seed) for seed in range(4)]
        streams = [pool.submit(post, server, body) for body in bodies]
        wait_until(lambda: running(server) == 4, "four requests run")
        server.terminate()
        wait_until(lambda: server.get("/v1/health/ready").status_code == 503, "the server drains")
        refused = post(server, chat())
        assert error_of(refused, 503)["code"] == "shutting_down"
        assert "retry-after" in refused.headers
        assert server.get("/v1/health/live").status_code == 200
        for stream in streams:
            assert finish_reasons(chunks_of(stream.result().text)) == {0: "length"}
    assert server.wait_exit() == 0


def test_p22_an_idle_server_ends_at_once(start_server: StartServer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        server = start_server()
        server.process.send_signal(number)
        assert server.wait_exit(10) == 0
        assert "Traceback" not in server.output


def test_p22_what_does_not_finish_is_cancelled(start_server: StartServer) -> None:
    server = start_server(sim={"step_us": 20_000}, server={"drain_timeout_s": 0.2})
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(post, server, chat(stream=True, **LONG))
        wait_until(lambda: running(server) == 1, "the request runs")
        server.terminate()
        text = stream.result().text
    assert text.endswith("data: [DONE]\n\n")
    assert json.loads(text.split("\n\n")[-3].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert server.wait_exit() == 0


def test_p22_a_second_signal_forces(start_server: StartServer) -> None:
    server = start_server(sim={"step_us": 20_000})
    with open_request(server, chat(stream=True, **LONG)):
        wait_until(lambda: running(server) == 1, "the request runs")
        server.terminate()
        wait_until(lambda: server.get("/v1/health/ready").status_code == 503, "the server drains")
        assert server.process.poll() is None
        server.terminate()
        assert server.wait_exit(5) == 128 + signal.SIGTERM


def test_p22_idle_connections_do_not_keep_the_process(start_server: StartServer) -> None:
    server = start_server()
    with socket.create_connection(("127.0.0.1", server.port)), httpx.Client() as client:
        client.get(server.base_url + "/v1/health/live")
        server.terminate()
        assert server.wait_exit(10) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "sim", "--chat-template", "{folder}/broken.j2"],
        ["--backend", "sim", "-C", "{folder}/missing.json5"],
        ["--backend", "sim", "--host", "no.such.host.invalid"],
        ["--backend", "sim", "-T", "{folder}"],
        ["{folder}/missing.gguf"],
    ],
)
def test_a_failed_start_is_one_line_and_no_port(tmp_path: Any, arguments: list[str]) -> None:
    (tmp_path / "broken.j2").write_text("{% if %}")
    port = free_port()
    result = run_llgtrt(*[one.format(folder=tmp_path) for one in arguments], "-q", "--port", str(port))
    assert result.returncode not in (0, None)
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if "error" in line.lower()]
    assert len(lines) == 1, result.stderr
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):  # noqa: PT011
        pass


def test_a_port_in_use(server: ServerProcess) -> None:
    result = run_llgtrt("--backend", "sim", "-q", "--host", "127.0.0.1", "--port", str(server.port))
    assert result.returncode not in (0, None)
    assert str(server.port) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_slow_reader_is_dropped(start_server: StartServer) -> None:
    server = start_server(
        runtime={"max_seq_len": 200_000}, server={"write_timeout_s": 0.3, "ping_interval_s": 0.1}
    )
    with open_request(server, chat(stream=True, ignore_eos=True, logprobs=True, top_logprobs=20)):
        # Nothing is read: the socket's buffers fill, and the stream is cut.
        wait_until(
            lambda: server.metric('llgtrt_http_disconnects_total{reason="slow"}') == 1,
            "the client is dropped",
        )
        wait_until(server.is_idle, "the place is free")


def test_half_open_connections_are_closed_and_others_served(start_server: StartServer) -> None:
    server = start_server(server={"header_timeout_s": 0.5})
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            for _ in range(200)
        ]
        for number, client in enumerate(clients):
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" if number % 2 else b"")
        assert ok(post(server, chat()))
        for client in clients:
            assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_a_unix_socket(start_server: StartServer, tmp_path: Any) -> None:
    path = tmp_path / "socket"
    server = start_server(wait=False, server={"uds": str(path)})
    wait_until(lambda: "listening on" in server.output, "the socket is open")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://server") as client:
        assert ok(client.post(CHAT, json=chat()))
    server.terminate()
    assert server.wait_exit() == 0


def test_the_log_is_json_if_asked_for_the_cores_part_too(start_server: StartServer) -> None:
    server = start_server(
        "--debug",
        server={"log_format": "json"},
        sim={"faults": [{"kind": "fail_engine", "at_step": 2, "prompt_contains": "kill"}]},
    )
    post(server, chat("hello", max_tokens=3))
    post(server, chat("kill", max_tokens=9))
    assert server.wait_exit() == EXIT_ENGINE_FAILED
    lines = [json.loads(line) for line in server.output.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    (loaded,) = [line for line in lines if line["message"] == "loaded"]
    assert (loaded["model"], loaded["engine"], loaded["context_tokens"]) == ("sim-model", "sim", 4096)
    first, second = [line for line in lines if line["logger"] == "llgtrt.requests"]
    assert (first["path"], first["status"], first["completion_tokens"]) == (CHAT, 200, 3)
    assert (second["status"], second["error"]) == (503, "engine_failed")
    assert first["request_id"] != second["request_id"]
    of_core = [line for line in lines if line["logger"].startswith("llgtrt.core.runtime")]
    assert any(line["level"] == "ERROR" for line in of_core)


def test_lines_of_the_core_name_the_request_and_parts_have_levels(start_server: StartServer) -> None:
    levels = "warning,llgtrt.core.runtime=debug,llgtrt.requests=info"
    server = start_server(server={"log_format": "json", "log_level": levels})
    secret = "a-secret-prompt"
    with httpx.Client(base_url=server.base_url, timeout=30) as http:
        for request_id, body in {
            "first-1": chat(secret, max_tokens=5, stream=True),
            "second-2": chat(secret, max_tokens=5, guided_regex="[a-c]{3}"),
            "third-3": chat(secret, guided_json={"type": "nothing"}),
        }.items():
            answer = http.post(CHAT, json=body, headers={"X-Request-ID": request_id})
            assert answer.headers["x-request-id"] == request_id
    server.terminate()
    assert server.wait_exit() == 0
    lines = [json.loads(line) for line in server.output.splitlines()]
    of_requests = {
        request_id: [line["message"] for line in lines if line.get("request_id") == request_id]
        for request_id in ("first-1", "second-2", "third-3")
    }
    assert of_requests == {
        "first-1": ["admitted", "got a slot", "ended", "request"],
        "second-2": ["admitted", "got a slot", "ended", "request"],
        "third-3": ["request"],
    }
    below = [line for line in lines if line["level"] in ("DEBUG", "INFO")]
    assert all(line["logger"].startswith(("llgtrt.core.runtime", "llgtrt.requests")) for line in below)
    assert secret not in server.output


def test_a_hangup_drains(start_server: StartServer) -> None:
    server = start_server()
    server.process.send_signal(signal.SIGHUP)
    assert server.wait_exit(10) == 0
    assert "SIGHUP: draining" in server.output
