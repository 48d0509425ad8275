"""Logits processors of the operator's: they act, each in its own answer; their errors are theirs alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI

from support.api import (
    CHAT,
    COMPLETIONS,
    PERSON,
    PERSON_FORMAT,
    chat,
    chunks_of,
    error_of,
    joined,
    ok,
    text_of,
)
from support.server import ServerProcess, run_llgtrt
from support.sim import sim_arguments

FILE = Path(__file__).with_name("example_logits_processor.py")
LIMIT_S = 2.5
NAMES = ["Say", "Count", "Boost", "same", "Wrong", "Keep"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    names = [f"{FILE}:{name}" for name in NAMES]
    config = {"py": {"logits_processors": names, "logits_processor_timeout_s": LIMIT_S}}
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("config"), config)) as process:
        yield process


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.base_url + path, json=body, timeout=60)


def say(text: str | None = None) -> dict[str, Any]:
    return {"name": "Say", "args": {} if text is None else {"text": text}}


def metric(server: ServerProcess, name: str) -> float:
    text = httpx.get(server.base_url + "/metrics").text
    return float(text.split(f"\n{name} ", 1)[1].split("\n", 1)[0])


def test_it_changes_what_is_said_in_every_api(server: ServerProcess) -> None:
    asked = {"logits_processors": [say("hello")]}
    assert text_of(ok(post(server, CHAT, chat(max_tokens=5, **asked)))) == "hello"
    body = {"model": "sim-model", "prompt": "Hi", "max_tokens": 10, **asked}
    assert ok(post(server, COMPLETIONS, body))["choices"][0]["text"] == "hellohello"
    body = {"model": "sim-model", "input": "Hi", "max_output_tokens": 5, **asked}
    answer = ok(post(server, "/v1/responses", body))
    assert answer["output"][0]["content"][0]["text"] == "hello"
    body = {"model": "sim-model", "messages": chat()["messages"], "max_tokens": 5, **asked}
    assert ok(post(server, "/v1/messages", body))["content"][0]["text"] == "hello"
    stream = post(server, CHAT, chat(max_tokens=5, stream=True, **asked)).text
    assert joined(chunks_of(stream)) == "hello"


def test_a_name_alone_and_the_stock_client(server: ServerProcess) -> None:
    client = OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)
    for asked in ("Say", ["Say"], [{"name": "Say"}]):
        answer = client.completions.create(
            model="sim-model",
            prompt="what was said",
            max_tokens=8,
            extra_body={"logits_processors": asked, "add_special_tokens": False},
        )
        assert answer.choices[0].text == "what was", asked


def test_each_answer_has_its_own(server: ServerProcess) -> None:
    body = {
        "model": "sim-model",
        "prompt": ["one", "two"],
        "n": 2,
        "max_tokens": 6,
        "logits_processors": ["Count"],
    }
    choices = ok(post(server, COMPLETIONS, body))["choices"]
    assert [choice["text"] for choice in choices] == ["012345"] * 4
    body = {**body, "n": 1, "max_tokens": 3, "logits_processors": [say()], "add_special_tokens": False}
    choices = ok(post(server, COMPLETIONS, body))["choices"]
    assert [choice["text"] for choice in choices] == ["one", "two"]


def test_the_last_one_sees_what_the_first_left(server: ServerProcess) -> None:
    body = chat(max_tokens=4, logits_processors=[say("a"), "Boost"])
    assert text_of(ok(post(server, CHAT, body))) == "xxxx"
    body = chat(max_tokens=4, logits_processors=["Boost", say("a")])
    assert text_of(ok(post(server, CHAT, body))) == "aaaa"


def test_one_that_does_nothing_changes_nothing(server: ServerProcess) -> None:
    fields = {"max_tokens": 30, "logprobs": True, "top_logprobs": 2, "seed": 11}
    plain = ok(post(server, CHAT, chat(**fields)))["choices"]
    assert ok(post(server, CHAT, chat(logits_processors=["same"], **fields)))["choices"] == plain


@pytest.mark.parametrize("name", ["Boost", "Say", "same"])
def test_the_constraint_wins(server: ServerProcess, name: str) -> None:
    chosen = say("xyz") if name == "Say" else {"name": name}
    for seed in range(5):
        body = chat(max_tokens=60, response_format=PERSON_FORMAT, logits_processors=[chosen], seed=seed)
        answer = json.loads(text_of(ok(post(server, CHAT, body))))
        jsonschema.validate(answer, PERSON)
        if name == "Boost":
            assert answer["name"] == "x" * 8, "it acts where the grammar lets it"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "the logits processor Wrong failed"),
        ("exit", "the logits processor Wrong failed"),
        ("slow", "the logits processor Wrong took too long"),
        ("nan", "a logits processor left a row with a logit that is not a number or infinite"),
        ("nothing", "a logits processor left a row without a token that may come next"),
        ("return", "gave a memoryview"),
    ],
)
def test_what_goes_wrong_ends_its_own_request(server: ServerProcess, how: str, message: str) -> None:
    body = chat(max_tokens=300, logits_processors=["same"], ignore_eos=True)
    beside: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: beside.append(post(server, CHAT, body)))
    thread.start()
    failures = metric(server, "llgtrt_logits_processor_failures_total")
    wrong = [{"name": "Wrong", "args": {"how": how, "seconds": LIMIT_S + 0.5}}]
    response = post(server, CHAT, chat(max_tokens=50, ignore_eos=True, logits_processors=wrong))
    error = error_of(response, 500)
    assert (error["code"], error["param"]) == ("logits_processor", "logits_processors")
    assert message in error["message"]
    assert "secret" not in error["message"]
    assert response.headers["x-should-retry"] == "false"
    thread.join()
    assert ok(beside[0])["usage"]["completion_tokens"] == 300
    assert metric(server, "llgtrt_logits_processor_failures_total") == failures + 1
    assert metric(server, "llgtrt_logits_processor_rows_total") > 300
    assert metric(server, "llgtrt_logits_processor_seconds_total") > 0
    if how == "raise":
        assert "a secret of the operator" in server.output
        assert "example_logits_processor.py" in server.output


def test_an_error_ends_a_stream(server: ServerProcess) -> None:
    wrong = [{"name": "Wrong", "args": {"how": "raise"}}]
    body = chat(max_tokens=50, ignore_eos=True, logits_processors=wrong, stream=True)
    events = post(server, CHAT, body).text.split("\n\n")
    assert any('"code":"logits_processor"' in event for event in events)


def test_a_row_that_is_kept_stays_memory(server: ServerProcess) -> None:
    for _ in range(5):
        body = chat(max_tokens=40, n=3, logits_processors=["Keep"], ignore_eos=True)
        assert ok(post(server, CHAT, body))["usage"]["completion_tokens"] == 120


@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        ("Nobody", "logits_processors[0].name", "this server has Boost, Count, Keep, Say, Wrong, same"),
        (["Say", {"name": "Nobody"}], "logits_processors[1].name", "There is no logits processor"),
        ([{"name": "Say", "args": {"text": 5}}], "logits_processors", "text must be a string"),
        (["Wrong"], "logits_processors", "no 'how'"),
        ([{"args": {}}], "logits_processors[0].name", ""),
        ([{"name": "Say", "kwargs": {}}], "logits_processors[0].kwargs", ""),
        (5, "logits_processors", ""),
        (["Say"] * 9, "logits_processors", ""),
    ],
)
def test_what_is_wrong_is_named(server: ServerProcess, given: Any, param: str, message: str) -> None:
    error = error_of(post(server, CHAT, chat(logits_processors=given)))
    assert error["param"] == param, error
    assert message in error["message"]


def test_beams_have_none(server: ServerProcess) -> None:
    for path, body in ((CHAT, chat()), (COMPLETIONS, {"model": "sim-model", "prompt": "Hi"})):
        asked = {"use_beam_search": True, "n": 2, "max_tokens": 3, "logits_processors": ["Say"]}
        error = error_of(post(server, path, {**body, **asked}))
        assert error["param"] == "logits_processors"


def test_a_server_without_any_says_so(tmp_path: Path) -> None:
    with ServerProcess(*sim_arguments(tmp_path, {})) as bare:
        error = error_of(post(bare, CHAT, chat(logits_processors=["Say"])))
        assert "this server has none" in error["message"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nobody"], "no entry point 'nobody' in the group llgtrt.logits_processors"),
        ([f"{FILE}:Nobody"], "has no Nobody"),
        ([f"{FILE}:KEPT"], "is nothing that can be called"),
        ([f"{FILE}:Say"] * 2, "two are called Say"),
    ],
)
def test_what_the_configuration_names_wrongly(tmp_path: Path, names: list[str], message: str) -> None:
    arguments = [argument for name in names for argument in ("--logits-processors", name)]
    run = run_llgtrt(*sim_arguments(tmp_path, {}), "--port", "0", *arguments)
    assert run.returncode == 1
    assert message in run.stderr
