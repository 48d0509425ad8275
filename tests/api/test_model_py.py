"""A Truss in a server, from the command line to the answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.api import CHAT, COMPLETIONS, chat, chunks_of, joined, ok, text_of
from support.server import ServerProcess, run_llgtrt, wait_until
from support.sim import sim_arguments

SOURCE = Path(__file__).with_name("example_model.py").read_text()
CONFIG_YAML = """
model_name: test
secrets: {token: default}
runtime: {predict_concurrency: 8}
trt_llm:
  build: {max_batch_size: 4, quantization_type: fp8}
  runtime: {served_model_name: from-truss, total_token_limit: 5}
"""
PREDICT = "/v1/models/any/name:predict"


def truss_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "model").mkdir()
    (folder / "model" / "model.py").write_text(SOURCE)
    (folder / "config.yaml").write_text(CONFIG_YAML)
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("data")
    return folder


def serve(folder: Path, **server: Any) -> ServerProcess:
    """A server of the Truss in a folder, with the slow simulated engine."""
    file = folder / "sim.json5"
    file.write_text(json.dumps({"sim": {"step_us": 2_000}, "server": server}))
    env = {"TRUSS_SECRET_token": "from the environment"}
    return ServerProcess("serve", str(folder), "--backend", "sim", "-C", str(file), env=env)


@pytest.fixture(scope="module")
def truss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return truss_folder(tmp_path_factory.mktemp("served") / "my-truss")


@pytest.fixture(scope="module")
def server(truss: Path) -> Iterator[ServerProcess]:
    with serve(truss) as process:
        yield process


def post(server: ServerProcess, body: Any, path: str = PREDICT) -> httpx.Response:
    return httpx.post(server.base_url + path, json=body, timeout=30)


def test_it_is_loaded_with_a_second_try(server: ServerProcess) -> None:
    state = ok(post(server, {"do": "state"}))
    assert state == {"loaded": True, "tries": 2, "secret": "from the environment", "data": "data"}
    assert "Failed to load model. Retrying..." in server.output
    assert "trt_llm.build.quantization_type, trt_llm.runtime.total_token_limit" in server.output
    assert server.output.count("not used of") == 1
    assert "slots=4" in server.output


def test_the_stock_client(server: ServerProcess) -> None:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0, timeout=30) as client:
        fields: dict[str, Any] = {
            "model": "from-truss",
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 12,
            "seed": 3,
        }
        whole = client.chat.completions.create(**fields)
        assert whole.model == "from-truss"
        streamed = ""
        for chunk in client.chat.completions.create(stream=True, **fields):
            streamed += chunk.choices[0].delta.content or ""
        assert streamed == whole.choices[0].message.content


def test_constraints_go_through_it(server: ServerProcess) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    fields = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    assert json.loads(text_of(ok(post(server, {"messages": chat()["messages"], **fields}))))["a"] in (1, 2)
    refused = post(server, {"messages": chat()["messages"], "guided_json": {"type": "nonsense"}})
    assert refused.status_code == 400
    assert "nonsense" in refused.json()["error"]


def test_the_server_s_own_routes_stay(server: ServerProcess) -> None:
    for path in ("/v1/health/ready", "/v1/health/live", "/v1/models", "/metrics", "/v1/health/model"):
        assert server.get(path).status_code == 200
    assert server.get("/").json() is True
    assert post(server, {}, "/v1/embeddings").status_code == 404


def test_health_is_the_model_s_own(server: ServerProcess, truss: Path) -> None:
    assert server.get("/v1/models/x").json() == {}
    (truss / "ill").touch()
    try:
        response = server.get("/v1/models/x")
        assert (response.status_code, response.json()) == (503, {"error": "Model with name x is not ready."})
        assert server.get("/v1/health/ready").status_code == 200
        assert server.get("/v1/models/x/loaded").status_code == 200
    finally:
        (truss / "ill").unlink()


@pytest.mark.parametrize("do", ["raise", "exit", "exit in a task"])
def test_what_it_raises_is_contained(server: ServerProcess, do: str) -> None:
    response = post(server, {"do": do})
    if do != "exit in a task":
        assert response.status_code == 500
        assert response.json() == {"error": "Internal Server Error (in model/chainlet)."}
    assert ok(post(server, {"do": "state"}))["loaded"]
    if do == "raise":
        assert "RuntimeError: internals" in server.output
    assert post(server, {"do": "pay"}).json() == {"error": "Pay first."}


def send(server: ServerProcess, body: Any, path: str = PREDICT) -> socket.socket:
    """A request whose client may leave at any time."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (PREDICT, {}),
        (CHAT, {}),
        (CHAT, {"stream": True}),
        (PREDICT, {"stream": True}),
        (PREDICT, {"do": "poll"}),
    ],
    ids=["predict", "chat", "chat-stream", "predict-stream", "poll"],
)
def test_a_generation_ends_with_its_client(server: ServerProcess, path: str, fields: dict[str, Any]) -> None:
    def running() -> float:
        return server.metric("llgtrt_num_requests_running")

    gone = 'llgtrt_http_disconnects_total{reason="disconnected"}'
    before = server.metric(gone)
    body = {**chat(), "model": None, "ignore_eos": True, "max_tokens": 4000, **fields}
    connection = send(server, body, path)
    wait_until(lambda: running() == 1, "it generates")
    connection.close()
    wait_until(server.is_idle, "nothing is generated any more")
    wait_until(lambda: server.metric(gone) == before + 1, "the server saw the client leave")
    wait_until(lambda: server.metric("llgtrt_model_requests") == 0, "the model is done with it")


def test_a_blocked_model_keeps_neither_probes_nor_the_drain(tmp_path: Path) -> None:
    """A method that blocks its event loop, and one that hangs on a thread."""
    folder = truss_folder(tmp_path / "my-truss")
    with serve(folder, drain_timeout_s=0.2) as server:
        first = send(server, {"prompt": "x"}, COMPLETIONS)
        wait_until((folder / "hanging").exists, "a thread hangs")
        second = send(server, {"do": "block the loop"})
        wait_until((folder / "started").exists, "the loop is blocked")
        for path in ("/v1/health/live", "/v1/health/ready", "/v1/health/model", "/metrics", "/"):
            assert server.get(path).status_code == 200
        server.terminate()
        assert server.wait_exit() == 0
        assert "model.py does not return; leaving it behind" in server.output
        first.close()
        second.close()


def test_a_stream_of_a_generator(server: ServerProcess) -> None:
    body = {"messages": chat()["messages"], "max_tokens": 9, "seed": 1}
    streamed = post(server, {**body, "do": "poll"})
    assert streamed.headers["content-type"] == "application/octet-stream"
    assert joined(chunks_of(streamed.text)) == text_of(ok(post(server, body)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "class Model:\n    def predict(self, a, b): ...\n",
            "ModelDefinitionError: `predict` method with two",
        ),
        ("class Model:\n    def __init__(self):\n        1 / 0\n", "model.py:3: ZeroDivisionError"),
        (
            "class Model:\n    def predict(self, a): ...\n    def load(self):\n        raise OSError('x')\n",
            "model.py:4: OSError: x",
        ),
    ],
)
def test_a_model_that_cannot_be_served_ends_the_start(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "model.py").write_text(source)
    process = run_llgtrt("-q", *sim_arguments(tmp_path, {}), "--model-py", str(tmp_path), "--port", "0")
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("llgtrt: error: ")
    assert message in process.stderr.splitlines()[-1]


def test_two_trusses_are_wrong_usage(tmp_path: Path, truss: Path) -> None:
    process = run_llgtrt("serve", str(truss), "--model-py", str(tmp_path))
    assert process.returncode == 2
    assert "two Trusses given" in process.stderr
