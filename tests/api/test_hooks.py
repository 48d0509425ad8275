"""A hook around the generations of a server, on every route."""

from __future__ import annotations

import importlib.util
import json
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.api import CHAT, COMPLETIONS, chat, chunks_of, error_of, joined, ok, text_of
from support.server import ServerProcess, run_llgtrt, wait_until
from support.sim import StartServer, sim_arguments

HOOK = Path(__file__).with_name("example_hook.py")
EXAMPLES = Path(__file__).parents[2] / "examples" / "hooks"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
GENERATE = "/v2/models/sim-model/generate"
STREAM = "/v2/models/sim-model/generate_stream"


class Hooked:
    """A server with the hook of the tests, and what the hook wrote."""

    def __init__(self, server: ServerProcess, file: Path) -> None:
        self.server = server
        self._file = file

    def post(self, do: str, body: Any = None, path: str = CHAT, **headers: str) -> httpx.Response:
        body = chat(max_tokens=8) if body is None else body
        return httpx.post(self.server.base_url + path, json=body, headers={"x-do": do, **headers}, timeout=30)

    def ends(self, request_id: str) -> list[dict[str, Any]]:
        """What ``on_end`` was told of a request, once it was."""
        wait_until(lambda: bool(self._lines(request_id)), "on_end was called")
        return self._lines(request_id)

    def _lines(self, request_id: str) -> list[dict[str, Any]]:
        if not self._file.exists():
            return []
        lines = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [line for line in lines if line["id"] == request_id]


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooked]:
    folder = tmp_path_factory.mktemp("hooked")
    file = folder / "ends.jsonl"
    config = {
        "py": {"hooks": f"{HOOK}:Hook", "hooks_arguments": {"file": str(file)}, "hooks_timeout_s": 30.0},
        "sim": {"step_us": 500},
    }
    with ServerProcess(*sim_arguments(folder, config)) as server:
        yield Hooked(server, file)


BODIES: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, chat(max_tokens=8), "chat"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 8, "seed": 1}, "completion"),
    (MESSAGES, {"model": "sim-model", "max_tokens": 8, "messages": chat()["messages"]}, "chat"),
    (RESPONSES, {"model": "sim-model", "max_output_tokens": 8, "input": "a"}, "chat"),
    (GENERATE, {"text_input": "a", "max_tokens": 8}, "completion"),
    (STREAM, {"text_input": "a", "max_tokens": 8, "stream": True}, "completion"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "kind"), BODIES, ids=[path for path, _, _ in BODIES])
def test_every_route_has_it(hooked: Hooked, path: str, body: dict[str, Any], kind: str, stream: bool) -> None:
    if path.startswith("/v1"):
        body = {**body, "stream": stream}
    request_id = f"every{path.replace('/', '-')}-{stream}"
    response = hooked.post("", body, path, **{"x-request-id": request_id})
    assert response.status_code == 200, response.text
    (end,) = hooked.ends(request_id)
    assert (end["kind"], end["path"], end["outcome"]) == (kind, path, "ok")
    assert end["reasons"] in (["length"], ["stop"])
    prompt, cached, completion = end["tokens"]
    assert prompt > 0
    assert cached is not None
    assert 0 < completion <= 8
    refused = hooked.post("refuse", body, path)
    assert refused.status_code == 402, refused.text
    assert refused.headers["x-price"] == "1"
    assert "Not you." in refused.text


def test_a_refusal_has_openai_s_form(hooked: Hooked) -> None:
    error = error_of(hooked.post("refuse"), 402)
    assert error == {"message": "Not you.", "type": "invalid_request_error", "param": None, "code": "pay"}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_streams_are_as_without_a_hook(hooked: Hooked, server: ServerProcess, path: str) -> None:
    """Also what Python writes then, where the core does otherwise."""
    fields = {"max_tokens": 12, "seed": 5, "stream": True, "stream_options": {"include_usage": True}}
    body = {"model": "sim-model", **fields}
    body |= {"messages": chat()["messages"]} if path == CHAT else {"prompt": ["a", "b"], "logprobs": 1}
    with_hook = chunks_of(hooked.post("", body, path).text)
    without = chunks_of(httpx.post(server.base_url + path, json=body, timeout=30).text)
    for index in (0, 1):
        assert joined(with_hook, index) == joined(without, index)
    assert with_hook[-1]["usage"] == without[-1]["usage"]
    assert set().union(*with_hook) == set().union(*without)
    choices = [
        {key for chunk in chunks for one in chunk["choices"] for key in one}
        for chunks in (with_hook, without)
    ]
    assert choices[0] - {"stop_reason"} == choices[1] - {"stop_reason"}


def test_the_stock_client_streams_through_it(hooked: Hooked) -> None:
    with OpenAI(base_url=f"{hooked.server.base_url}/v1", api_key="x", max_retries=0, timeout=30) as client:
        fields: dict[str, Any] = {"model": "sim-model", "max_tokens": 9, "seed": 2}
        parts = client.completions.create(prompt="a", stream=True, **fields)
        text = "".join(part.choices[0].text for part in parts)
        assert text == client.completions.create(prompt="a", **fields).choices[0].text


def test_the_request_can_be_rewritten(hooked: Hooked) -> None:
    asked = chat(max_tokens=8, return_expanded_prompt=True)
    body = ok(hooked.post("rewrite", asked))
    assert "rewritten" in body["expanded_prompt"]
    assert "Tell me" not in body["expanded_prompt"]
    assert body["usage"]["completion_tokens"] <= 3
    text = ok(hooked.post("rewrite", {"prompt": "a", "return_expanded_prompt": True}, COMPLETIONS))
    assert text["expanded_prompt"] == "rewritten"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_answer_can_be_rewritten(hooked: Hooked, path: str, stream: bool) -> None:
    body: dict[str, Any] = {"max_tokens": 20, "seed": 3, "stream": stream}
    body |= {"messages": chat()["messages"]} if path == CHAT else {"prompt": "a"}

    def text(do: str) -> str:
        response = hooked.post(do, body, path)
        if stream:
            return joined(chunks_of(response.text))
        choice = ok(response)["choices"][0]
        return str(choice["text"] if path == COMPLETIONS else choice["message"]["content"])

    assert text("upper") == text("").upper()
    assert text("upper") != text("")


def test_a_constrained_answer_cannot_be_rewritten_but_looked_at(hooked: Hooked) -> None:
    """What was checked stays what the client gets."""
    body = chat(response_format={"type": "choice", "choice": ["yes", "no"]})
    request_id = "constrained"
    assert text_of(ok(hooked.post("", body, **{"x-request-id": request_id}))) in ("yes", "no")
    assert hooked.ends(request_id)[0]["constrained"]
    assert error_of(hooked.post("upper", body), 500)["code"] == "hook_failed"
    assert "rewrote a constrained answer" in hooked.server.output


@pytest.mark.parametrize("do", ["raise", "exit", "nonsense", "output fails", "output is no text"])
def test_a_failure_is_500_and_told_to_the_log_only(hooked: Hooked, do: str) -> None:
    name = "on_output" if "output" in do else "on_request"
    metric = f'llgtrt_hook_failures_total{{method="{name}",reason="error"}}'
    before = hooked.server.metric(metric)
    error = error_of(hooked.post(do), 500)
    assert error["message"] == "The server's hook failed."
    assert error["code"] == "hook_failed"
    assert hooked.server.metric(metric) == before + 1
    assert f"the hook's {name} failed" in hooked.server.output
    ok(hooked.post(""))


def test_a_call_that_takes_too_long_is_503(tmp_path: Path, start_server: StartServer) -> None:
    config = {
        "hooks": f"{HOOK}:Hook",
        "hooks_arguments": {"file": str(tmp_path / "x")},
        "hooks_timeout_s": 0.1,
    }
    server = start_server(py=config)
    response = httpx.post(server.base_url + CHAT, json=chat(), headers={"x-do": "hang"}, timeout=30)
    error = error_of(response, 503)
    assert error["code"] == "hook_timeout"
    assert response.headers["retry-after"] == "1"
    assert server.metric('llgtrt_hook_failures_total{method="on_request",reason="timeout"}') == 1
    for path in ("/v1/health/ready", "/v1/health/model", "/metrics"):
        assert server.get(path).status_code == 200
    server.terminate()
    assert server.wait_exit() == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_of_the_output_ends_the_answer(hooked: Hooked, stream: bool) -> None:
    request_id = f"filtered-{stream}"
    response = hooked.post("refuse output", chat(stream=stream), **{"x-request-id": request_id})
    error = error_of(response, 451)
    assert error["code"] == "filtered"
    (end,) = hooked.ends(request_id)
    assert end["outcome"] == "refused"
    wait_until(hooked.server.is_idle, "its generation ended")


def test_a_failure_of_on_end_is_counted_and_nothing_else(hooked: Hooked) -> None:
    metric = 'llgtrt_hook_failures_total{method="on_end",reason="error"}'
    before = hooked.server.metric(metric)
    ok(hooked.post("end fails"))
    wait_until(lambda: hooked.server.metric(metric) == before + 1, "it is counted")


def test_on_end_follows_on_a_request_that_the_server_refuses(hooked: Hooked) -> None:
    assert hooked.post("", {"messages": [{"role": "a wizard"}]}, **{"x-request-id": "bad"}).status_code == 400
    (end,) = hooked.ends("bad")
    assert (end["outcome"], end["error"]) == ("error", "RequestError")


@pytest.mark.parametrize("stream", [False, True])
def test_on_end_follows_when_the_client_leaves(hooked: Hooked, stream: bool) -> None:
    request_id = f"left-{stream}"
    body = json.dumps(chat(ignore_eos=True, max_tokens=4000, stream=stream)).encode()
    connection = socket.create_connection(("127.0.0.1", hooked.server.port))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nX-Request-Id: {request_id}\r\n"
    connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    if stream:
        assert connection.recv(1000)
    wait_until(lambda: hooked.server.metric("llgtrt_num_requests_running") == 1, "it runs")
    connection.close()
    (end,) = hooked.ends(request_id)
    assert end["outcome"] == "cancelled"
    assert end["tokens"][0] is None
    assert (end["tokens"][2] > 0) == stream


def test_the_probe_that_generates_does_not_ask_it(hooked: Hooked) -> None:
    response = httpx.get(hooked.server.base_url + "/v1/health/model", headers={"x-do": "refuse"})
    assert response.status_code == 200


def test_the_key_s_name_and_a_model_py_s_generations(tmp_path: Path, start_server: StartServer) -> None:
    (tmp_path / "model.py").write_text(
        "class Model:\n    def __init__(self, trt_llm): self.engine = trt_llm['engine']\n"
        "    async def predict(self, body):\n"
        "        answers = [await self.engine.predict(body) for _ in range(2)]\n"
        "        return [one.usage.completion_tokens for one in answers]\n"
    )
    file = tmp_path / "ends.jsonl"
    server = start_server(
        "--model-py",
        str(tmp_path / "model.py"),
        wait=False,
        py={"hooks": f"{HOOK}:Hook", "hooks_arguments": {"file": str(file)}},
        server={"api_keys": [{"key": "secret", "name": "gold"}]},
    )
    server.wait_ready()
    headers = {"authorization": "Bearer secret", "x-request-id": "twice"}
    body = {"prompt": "a", "max_tokens": 4, "user": "me"}
    response = httpx.post(server.base_url + "/v1/models/m:predict", json=body, headers=headers, timeout=30)
    assert response.status_code == 200, response.text
    hooked = Hooked(server, file)
    wait_until(lambda: len(hooked.ends("twice")) == 2, "both ended")
    assert {(end["key"], end["user"], end["outcome"]) for end in hooked.ends("twice")} == {
        ("gold", "me", "ok")
    }
    headers["x-do"] = "refuse"
    response = httpx.post(server.base_url + "/v1/models/m:predict", json=body, headers=headers, timeout=30)
    assert (response.status_code, response.json()) == (402, {"error": "Not you."})


def example(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"hooks": f"{EXAMPLES / name}", "hooks_arguments": arguments}


def test_the_rate_limiter(start_server: StartServer) -> None:
    py = example("rate_limiter.py:RateLimiter", {"default": 1, "tiers": {"gold": 2}})
    keys = [{"key": "a", "name": "gold"}, {"key": "b", "name": "free"}]
    server = start_server(py=py, server={"api_keys": keys})

    def post(key: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(server.base_url + CHAT, json=chat(max_tokens=2), headers=headers, timeout=30)

    assert [post("b").status_code for _ in range(2)] == [200, 429]
    refused = post("b")
    assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert [post("a").status_code for _ in range(3)] == [200, 200, 429]


def test_places_of_the_rate_limiter_come_back() -> None:
    spec = importlib.util.spec_from_file_location("rate_limiter", EXAMPLES / "rate_limiter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    limiter = module.RateLimiter({"default": 2})
    assert [limiter._take("x", 2.0, 100.0) for _ in range(3)] == [0.0, 0.0, 30.0]
    assert limiter._take("y", 2.0, 100.0) == 0.0
    assert limiter._take("x", 2.0, 130.0) == 0.0
    assert limiter._take("x", 2.0, 145.0) == 15.0


def test_the_usage_ledger(start_server: StartServer, tmp_path: Path) -> None:
    file = tmp_path / "usage.sqlite"
    server = start_server(py=example("usage_ledger.py:UsageLedger", {"file": str(file)}))
    usage = []
    for stream in (False, True):
        fields = {"stream": stream, "stream_options": {"include_usage": True}} if stream else {}
        body = chat(max_tokens=6, user="me", **fields)
        response = httpx.post(server.base_url + CHAT, json=body, timeout=30)
        usage.append(chunks_of(response.text)[-1]["usage"] if stream else ok(response)["usage"])
    # The last rows are written before the server ends.
    server.terminate()
    assert server.wait_exit() == 0
    with sqlite3.connect(file) as database:
        rows = database.execute(
            "SELECT user, outcome, prompt_tokens, cached_tokens, completion_tokens FROM usage "
            "ORDER BY ended_at"
        ).fetchall()
    database.close()
    assert rows == [
        (
            "me",
            "ok",
            one["prompt_tokens"],
            one["prompt_tokens_details"]["cached_tokens"],
            one["completion_tokens"],
        )
        for one in usage
    ]


def test_the_audit_log(start_server: StartServer, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    server = start_server(py=example("audit_log.py:AuditLog", {"file": str(file)}))
    answers = [
        httpx.post(server.base_url + CHAT, json=chat("a secret", max_tokens=6, stream=stream), timeout=30)
        for stream in (False, True)
    ]
    assert all(answer.status_code == 200 for answer in answers)
    wait_until(lambda: len(file.read_text().splitlines()) == 4, "all lines are written")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(line["event"] for line in lines) == ["end", "end", "request", "request"]
    assert "secret" not in file.read_text()
    assert len({line["prompt_sha256"] for line in lines if line["event"] == "request"}) == 1
    assert len({line["answer_sha256"] for line in lines if line["event"] == "end"}) == 1, (
        "however it was sent"
    )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nothing", "no entry point 'nothing' in the group llgtrt.hooks"),
        ("nowhere.py:Hook", "nowhere.py: no such file"),
        ("no_such_module:Hook", "No module named 'no_such_module'"),
        ("json:Nothing", "json has no Nothing"),
        ("json:dumps", "json:dumps is no class"),
        ("json:JSONDecoder", "has none of on_request, on_output, on_end"),
        (f"{HOOK}:Hook", "example_hook.py:"),
    ],
)
def test_a_hook_that_cannot_be_used_ends_the_start(tmp_path: Path, reference: str, message: str) -> None:
    process = run_llgtrt("-q", *sim_arguments(tmp_path, {}), "--hooks", reference)
    assert process.returncode == 1
    assert message in process.stderr.splitlines()[-1]
