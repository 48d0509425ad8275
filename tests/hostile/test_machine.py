"""A machine that runs out: of descriptors, of memory, of room for the log, and of a steady clock."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from support.api import CHAT, chat, error_of, ok
from support.hostile.figures import record
from support.hostile.form import ENVIRONMENT, by_form
from support.hostile.neighbours import Neighbours
from support.hostile.probe import HealthProbe
from support.hostile.wire import answer_of, connect, post, request_bytes
from support.server import ServerProcess, wait_until
from support.sim import StartServer

WHOLE = request_bytes(CHAT, json.dumps(chat(max_tokens=3)).encode())


def said(server: ServerProcess) -> list[str]:
    """What each of many clients that are connected at the same time is told."""
    told = []
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(200)]
        for client in clients:
            try:
                client.sendall(WHOLE)
                status, headers, body = answer_of(client)
            except (ConnectionError, EOFError):
                told.append("cut")
                continue
            told.append(str(status))
            if status == 503:
                assert "retry-after" in headers
                assert json.loads(body)["error"]["code"] == "overloaded"
    return told


def test_64_descriptors(start_server: StartServer) -> None:
    server = start_server(prefix=["prlimit", "--nofile=64:64"])
    told = Counter(said(server))
    assert told["200"] >= 8
    assert told["503"] >= 1
    assert set(told) <= {"200", "503", "cut"}
    # Those that were served stayed connected; when they leave, there is room again.
    wait_until(lambda: server.get("/v1/health/ready").status_code == 200, "there is room")
    assert ok(post(server, CHAT, chat(max_tokens=3)))
    refused = server.metric("llgtrt_http_connections_refused_total")
    assert refused >= told["503"] + told["cut"]
    assert server.output.count("turning others away") == 1
    assert "Too many open files" not in server.output
    record("200 connections, 64 descriptors", f"{dict(told)}")


def test_the_soft_limit_of_files_is_raised(start_server: StartServer) -> None:
    server = start_server(prefix=["prlimit", "--nofile=100:1000"])
    limits = (Path("/proc") / str(server.process.pid) / "limits").read_text().splitlines()
    (files,) = [line.split() for line in limits if line.startswith("Max open files")]
    assert files[3:5] == ["1000", "1000"]
    # More than the soft limit had room for.
    assert Counter(said(server)) == {"200": 200}


@pytest.mark.parametrize("room_mb", by_form([4], [1, 2, 4, 8, 16, 32, 64]))
def test_little_memory(start_server: StartServer, room_mb: int) -> None:
    """The process serves or it is gone; it never stays without answering."""
    server = start_server(runtime={"max_seq_len": 300_000})
    status = (Path("/proc") / str(server.process.pid) / "statm").read_text()
    limit = int(status.split()[0]) * 4096 + room_mb * 2**20
    assert limit_memory(server, limit)

    def ask(number: int) -> str:
        schema = {"properties": {f"p{number}_{at}": {"pattern": f"[a-z]{{{at}}}x"} for at in range(100)}}
        body = chat("x" * 200_000, max_tokens=30, n=4, guided_json=schema, metadata={"a": "y" * 500_000})
        try:
            return str(post(server, CHAT, body).status_code)
        except httpx.TransportError:
            return "cut"

    with ThreadPoolExecutor(24) as pool:
        told = Counter(pool.map(ask, range(48)))

    def serves_or_is_gone() -> bool:
        if server.process.poll() is not None:
            return True
        try:
            return post(server, CHAT, chat(max_tokens=3)).status_code == 200
        except httpx.ConnectError:
            return False

    wait_until(serves_or_is_gone, "the process serves or is gone", 60)
    code = server.process.poll()
    assert code != 0
    end = "serves on" if code is None else f"code {code}"
    record(f"memory for {room_mb} MB more", f"{dict(told)}, {end}")


def limit_memory(server: ServerProcess, limit: int) -> bool:
    """Whether the server now has an address space of so many bytes."""
    import resource

    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
    return resource.prlimit(server.process.pid, resource.RLIMIT_AS)[0] == limit


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_full_disk_for_the_log(start_server: StartServer, log_format: str) -> None:
    """Standard output and error that take nothing; every line of the core's and of Python's fails."""
    to_a_full_disk = ["sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh"]
    server = start_server("--debug", prefix=to_a_full_disk, server={"log_format": log_format})
    with HealthProbe(server.port) as probe, Neighbours(server.base_url) as neighbours:
        for number in range(by_form(20, 500)):
            assert ok(post(server, CHAT, chat(max_tokens=3, seed=number)))
            error_of(post(server, CHAT, chat(max_tokens=-5)))
    probe.check()
    neighbours.check()
    server.terminate()
    assert server.wait_exit() == 0


@pytest.mark.full_form
def test_a_clock_that_jumps(start_server: StartServer, tmp_path: Path) -> None:
    """The wall clock goes a year ahead and back; deadlines do not follow it, and answers stay."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    library = next(ENVIRONMENT.glob("lib/python*/site-packages/libfaketime/**/libfaketime.so.1"))
    server = start_server(
        runtime={"stall_timeout_ms": 2000},
        sim={"step_us": 1000},
        server={"exit_after_stall_s": 1, "request_timeout_s": 100, "ping_interval_s": 0.1},
        env={
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        },
    )
    years = []
    with HealthProbe(server.port) as probe, Neighbours(server.base_url) as neighbours:
        for jump in ("+0", "+365d", "-365d", "+0") * by_form(1, 10):
            clock.write_text(jump)
            answer = ok(post(server, CHAT, chat(max_tokens=100, ignore_eos=True)))
            years.append(answer["created"])
    # The jumps were seen: this is no test of a steady clock.
    assert max(years) - min(years) > 700 * 86_400
    probe.check()
    neighbours.check()
    assert server.process.poll() is None
    record("clock jumps of a year", f"{len(years)} answered")
