"""When something fails inside: only what it concerns fails, and a dead engine ends the process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from llgtrt.api.server import EXIT_ENGINE_FAILED
from support.api import CHAT, chat, error_of, ok, text_of
from support.server import ServerProcess, wait_until
from support.sim import FAIL_PROMPT, NAN_PROMPT, StartServer


@pytest.mark.parametrize(("prompt", "code"), [(NAN_PROMPT, "not_finite"), (FAIL_PROMPT, "internal_error")])
def test_neighbours_of_a_failed_sequence_are_identical(
    http: httpx.Client, server: ServerProcess, prompt: str, code: str
) -> None:
    bodies = [chat(seed=seed, max_tokens=60) for seed in range(7)]
    alone = [text_of(ok(http.post(CHAT, json=body))) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        post = lambda body: httpx.post(server.base_url + CHAT, json=body, timeout=60)  # noqa: E731
        responses = list(pool.map(post, [*bodies[:3], chat(prompt), *bodies[3:]]))
    failed = responses.pop(3)
    assert error_of(failed, 500)["code"] == code
    assert [text_of(ok(response)) for response in responses] == alone
    wait_until(server.is_idle, "no request is left")


@pytest.mark.parametrize("kind", ["nan_row", "fail_sequence"])
def test_p19_a_later_failure_is_an_event(start_server: StartServer, kind: str) -> None:
    # Slow enough that text is sent before it.
    server = start_server(sim={"step_us": 20_000, "faults": [{"kind": kind, "at_step": 20}]})
    body = chat(stream=True, ignore_eos=True, max_tokens=100)
    response = httpx.post(server.base_url + CHAT, json=body, timeout=60)
    events = [event for event in response.text.split("\n\n") if event]
    assert response.status_code == 200
    assert events.pop() == "data: [DONE]"
    assert len(events) > 1
    assert all("error" not in json.loads(event[6:]) for event in events[:-1])
    assert set(json.loads(events[-1].removeprefix("data: "))["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("kind", ["fail_engine", "panic"])
def test_a_dead_engine_ends_the_process(start_server: StartServer, kind: str) -> None:
    server = start_server(
        sim={"step_us": 20_000, "faults": [{"kind": kind, "at_step": 20, "prompt_contains": "kill"}]}
    )

    def stream(content: str) -> str:
        body = chat(content, stream=True, ignore_eos=True, max_tokens=2000)
        return httpx.post(server.base_url + CHAT, json=body, timeout=60).text

    with ThreadPoolExecutor(3) as pool:
        streams = [pool.submit(stream, content) for content in ("hello", "kill", "world")]
        texts = [one.result() for one in streams]
    for text in texts:
        last = text.split("\n\n")[-3]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_failed", text
        assert text.endswith("data: [DONE]\n\n")
    assert server.wait_exit(10) == EXIT_ENGINE_FAILED
    # The core's own words, from a thread that Python knows nothing of.
    assert "ERROR llgtrt.core.runtime" in server.output


def test_an_engine_that_aborts_the_process(start_server: StartServer) -> None:
    server = start_server(sim={"faults": [{"kind": "abort", "prompt_contains": "kill"}]})
    with pytest.raises(httpx.TransportError):
        httpx.post(server.base_url + CHAT, json=chat("kill"), timeout=60)
    assert server.wait_exit(10) != 0


def test_an_engine_that_hangs(start_server: StartServer) -> None:
    server = start_server(
        runtime={"stall_timeout_ms": 300},
        sim={"faults": [{"kind": "hang", "at_step": 5, "prompt_contains": "hang"}]},
        server={"drain_timeout_s": 0.2},
    )

    with httpx.Client(timeout=60) as client:
        body: dict[str, Any] = chat("hang", stream=True)
        with client.stream("POST", server.base_url + CHAT, json=body) as response:
            # Held: where an iterator is dropped, httpx leaves, and the request may end before its fifth step.
            chunks = response.iter_raw()
            next(chunks)
            probes: list[httpx.Response] = []

            def stalled() -> bool:
                probes.append(server.get("/v1/health/ready"))
                return probes[-1].status_code == 503

            wait_until(stalled, "the stall is noticed")
            error_of(probes[-1], 503)
            assert server.get("/v1/health/live").status_code == 200
            assert server.get("/metrics").status_code == 200
            # A process whose engine hangs can still be stopped.
            server.terminate()
            server.wait_exit(20)


def test_no_false_stall_while_idle_or_busy(start_server: StartServer) -> None:
    server = start_server(runtime={"stall_timeout_ms": 200}, sim={"step_us": 1000})
    for _ in range(5):
        ok(httpx.post(server.base_url + CHAT, json=chat(ignore_eos=True, max_tokens=300), timeout=60))
        assert server.get("/v1/health/ready").status_code == 200
