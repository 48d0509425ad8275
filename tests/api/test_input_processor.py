"""An input processor in a server, from the file to the answer."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import CHAT, chat, chunks_of, error_of, joined, ok, text_of
from support.server import ServerProcess, run_llgtrt, wait_until
from support.sim import StartServer, sim_arguments

PROCESSOR = Path(__file__).with_name("example_input_processor.py")
CONFIG = {
    "py": {"input_processor": str(PROCESSOR), "arguments": {"prefix": "[]"}},
    "sim": {"text": "script", "script": "An answer."},
}


@pytest.fixture(scope="module")
def processing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("processing"), CONFIG)) as process:
        yield process


def post(server: ServerProcess, **fields: Any) -> httpx.Response:
    return httpx.post(server.base_url + CHAT, json=chat(**fields), timeout=30)


def test_the_processor_makes_the_prompt(processing: ServerProcess) -> None:
    body = ok(post(processing, content="Hello", return_expanded_prompt=True))
    assert body["expanded_prompt"] == "[]Hello"
    assert body["usage"]["prompt_tokens"] == len("[]Hello"), "no token is added to its own"
    assert text_of(body) == "An answer."
    chunks = chunks_of(post(processing, content="Hello", return_expanded_prompt=True, stream=True).text)
    assert chunks[0]["expanded_prompt"] == "[]Hello"
    assert joined(chunks) == "An answer."


def test_parts_that_templates_do_not_know(processing: ServerProcess) -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:,red"}}]
    body = ok(post(processing, content=parts, return_expanded_prompt=True))
    assert body["expanded_prompt"] == "[]See(red)"


def test_constraints_and_choices_work_as_ever(processing: ServerProcess) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    body = ok(
        post(
            processing,
            n=2,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        )
    )
    assert len(body["choices"]) == 2
    assert all(json.loads(text_of(body, index))["a"] in (1, 2) for index in (0, 1))


def test_options_of_the_request_reach_it(processing: ServerProcess) -> None:
    schema = {"const": "x"}
    fields = {
        "n": 2,
        "max_tokens": 7,
        "seed": 5,
        "include_json_schema_in_prompt": True,
        "chat_template_kwargs": {"tone": "dry"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        "return_expanded_prompt": True,
    }
    body = ok(post(processing, content="options", **fields))
    assert json.loads(body["expanded_prompt"]) == [schema, 2, 7, 5, False, {"tone": "dry"}, True, False]


@pytest.mark.parametrize("stream", [False, True])
def test_the_client_s_fault_is_400(processing: ServerProcess, stream: bool) -> None:
    parts = [{"type": "image_url", "image_url": {"url": "http://example.com/"}}]
    error = error_of(post(processing, content=parts, stream=stream))
    assert error["param"] == "messages[0].content[0].image_url.url"
    assert error["message"] == "Only data: URLs are taken."
    assert error["type"] == "invalid_request_error"


def test_a_refusal_of_the_template_is_400(processing: ServerProcess) -> None:
    error = error_of(post(processing, messages=[{"role": "a wizard", "content": "template"}]))
    assert error["param"] == "messages[0].role"


@pytest.mark.parametrize("content", ["raise", "exit", "nonsense", "beyond"])
def test_a_defect_is_500_and_told_to_the_log_only(processing: ServerProcess, content: str) -> None:
    error = error_of(post(processing, content=content), 500)
    assert error["message"] == "Internal server error."
    assert error["code"] == "internal_error"
    wait_until(lambda: "ProcessorFailedError" in processing.output, "the failure is in the log")
    if content == "raise":
        assert "RuntimeError: internals" in processing.output
        assert "example_input_processor.py" in processing.output
    ok(post(processing))


@pytest.mark.parametrize(
    ("content", "names"), [("table", "prompt_table, position_ids"), ("positions", "position_ids")]
)
def test_what_the_engine_cannot_take_is_400(processing: ServerProcess, content: str, names: str) -> None:
    error = error_of(post(processing, content=content))
    assert (
        error["message"] == f"The sim engine takes prompts of tokens only, but these messages need {names}."
    )
    assert error["param"] == "messages"


def test_too_long_a_prompt_is_400(processing: ServerProcess) -> None:
    error = error_of(post(processing, content="x" * 300_000))
    assert error["code"] == "context_length_exceeded"


def test_the_text_of_tokens_is_the_prompt_where_it_gives_none(processing: ServerProcess) -> None:
    body = ok(post(processing, content="tokens only", return_expanded_prompt=True))
    assert body["expanded_prompt"] == "tokens only"


def test_a_waiting_request_ends_with_its_client(start_server: StartServer, tmp_path: Path) -> None:
    arguments = {"prefix": "", "folder": str(tmp_path)}
    server = start_server(**{**CONFIG, "py": {"input_processor": str(PROCESSOR), "arguments": arguments}})

    def send(content: str) -> socket.socket:
        body = json.dumps(chat(content)).encode()
        connection = socket.create_connection(("127.0.0.1", server.port))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection

    def disconnects() -> float:
        return server.metric('llgtrt_http_disconnects_total{reason="disconnected"}')

    running = send("until cancelled")
    wait_until((tmp_path / "started").exists, "the first call runs")
    waiting = send("never")
    wait_until(lambda: server.metric("llgtrt_input_processor_requests") == 2, "the second call waits")
    waiting.close()
    wait_until(lambda: disconnects() == 1, "the server sees that the second client left")
    running.close()
    wait_until((tmp_path / "cancelled").exists, "the first call is told")
    assert disconnects() == 2
    ok(post(server, content="Hello"))
    assert not (tmp_path / "never").exists()
    assert server.is_idle()
    server.terminate()
    assert server.wait_exit() == 0


def test_the_request_timeout_counts_it(start_server: StartServer, tmp_path: Path) -> None:
    arguments = {"prefix": "", "folder": str(tmp_path)}
    config = {
        **CONFIG,
        "py": {"input_processor": str(PROCESSOR), "arguments": arguments},
        "server": {"request_timeout_s": 0.3},
    }
    server = start_server(**config)
    error = error_of(post(server, content="until cancelled"), 504)
    assert error["code"] == "request_timeout"
    wait_until((tmp_path / "cancelled").exists, "the call is told")


def test_a_call_that_never_returns_does_not_keep_the_process(
    start_server: StartServer, tmp_path: Path
) -> None:
    arguments = {"prefix": "", "folder": str(tmp_path)}
    config = {
        **CONFIG,
        "py": {"input_processor": str(PROCESSOR), "arguments": arguments},
        "server": {"request_timeout_s": 0.3, "drain_timeout_s": 0.0},
    }
    server = start_server(**config)
    error_of(post(server, content="for ever"), 504)
    server.terminate()
    assert server.wait_exit() == 0
    assert "the input processor does not return" in server.output


def test_the_file_beside_the_model_is_found(start_server: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "input_processor.py").write_text(PROCESSOR.read_text())
    server = start_server(str(folder), py={"arguments": {"prefix": "beside "}})
    body = ok(post(server, content="it", return_expanded_prompt=True))
    assert body["expanded_prompt"] == "beside it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_this", ":1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        (
            "from llgtrt.hooks import InputProcessor\nclass A(InputProcessor):\n"
            "    def __init__(self, context):\n        1 / 0\n    def process(self, request): ...\n",
            ":4: ZeroDivisionError: division by zero",
        ),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--test-py"]])
def test_a_processor_that_does_not_load_ends_the_start(
    tmp_path: Path, text: str, message: str, flags: list[str]
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    process = run_llgtrt("-q", *sim_arguments(tmp_path, {"py": {"input_processor": str(file)}}), *flags)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1] == f"llgtrt: error: {file}{message}"


def test_a_missing_file_ends_the_start(tmp_path: Path) -> None:
    process = run_llgtrt(*sim_arguments(tmp_path, {"py": {"input_processor": "nowhere.py"}}))
    assert process.returncode == 1
    assert process.stderr == f"llgtrt: error: {tmp_path}/nowhere.py: no such file (py.input_processor)\n"


def test_test_py_prints_what_it_makes_of_an_example(tmp_path: Path) -> None:
    process = run_llgtrt(*sim_arguments(tmp_path, CONFIG), "--test-py")
    assert process.returncode == 0, process.stderr
    lines = dict(line.split(": ", 1) for line in process.stdout.splitlines())
    assert json.loads(lines["prompt"]) == "[]What is the capital of France?"
    assert json.loads(lines["messages"])[1]["role"] == "user"
    assert json.loads(lines["tokens (32)"]) == list(b"[]What is the capital of France?")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("refuse", ": refuses the example: messages[0]: No."),
        ("raise", ": RuntimeError: internals"),
        ("nothing", ": process() returned NoneType, not PreparedInput"),
    ],
)
def test_test_py_fails_where_the_processor_does(tmp_path: Path, mode: str, message: str) -> None:
    config = {"py": {"input_processor": str(PROCESSOR), "arguments": {"mode": mode}}}
    process = run_llgtrt("-q", *sim_arguments(tmp_path, config), "--test-py")
    assert process.returncode == 1
    line = process.stderr.splitlines()[-1]
    assert line.startswith(f"llgtrt: error: {PROCESSOR}")
    assert line.endswith(message)


def test_test_py_without_a_processor(tmp_path: Path) -> None:
    process = run_llgtrt(*sim_arguments(tmp_path, {}), "--test-py")
    assert process.returncode == 1
    assert "no input processor: neither py.input_processor nor input_processor.py" in process.stderr
