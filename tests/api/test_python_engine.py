"""An engine in Python: all above rows of logits is as on other engines; failures end what they concern."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI

from llgtrt.hooks.files import run_file
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
from support.server import ServerProcess, run_llgtrt, wait_until

FILE = Path(__file__).with_name("example_engine.py")
Ngram: Any = run_file(FILE, "engine_of_the_tests").Ngram
PROCESSORS = Path(__file__).with_name("example_logits_processor.py")


def arguments(folder: Path, name: str = "Faulty") -> list[str]:
    file = folder / "engine.json5"
    config = {
        "runtime": {"seed": 1},
        "py": {"engine_arguments": {"slots": 3}, "logits_processors": [f"{PROCESSORS}:Say"]},
    }
    file.write_text(json.dumps(config))
    return ["--engine-class", f"{FILE}:{name}", "-C", str(file), "--served-model-name", "sim-model"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(*arguments(tmp_path_factory.mktemp("config"))) as process:
        yield process


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.base_url + path, json=body, timeout=60)


def complete(server: ServerProcess, prompt: str, **fields: Any) -> httpx.Response:
    body = {"model": "sim-model", "prompt": prompt, "temperature": 0, "add_special_tokens": False, **fields}
    return post(server, COMPLETIONS, body)


def metric(server: ServerProcess, name: str) -> float:
    text = httpx.get(server.base_url + "/metrics").text
    return float(text.split(f"\n{name} ", 1)[1].split("\n", 1)[0])


def test_what_its_rows_say_is_said(server: ServerProcess) -> None:
    answer = ok(complete(server, "the quick br", max_tokens=20))
    assert answer["choices"][0]["text"] == "own fox jumps over t"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {**answer["usage"], "prompt_tokens": 12, "completion_tokens": 20}
    stream = complete(server, "the quick br", max_tokens=20, stream=True).text
    assert joined(chunks_of(stream)) == "own fox jumps over t"
    stopped = ok(complete(server, "the quick br", max_tokens=50, stop=["jumps"]))["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == ("own fox ", "stop")


def test_the_log_probabilities_are_those_of_its_rows(server: ServerProcess) -> None:
    answer = ok(complete(server, "lazy", max_tokens=5, logprobs=3, echo=True))["choices"][0]
    text = answer["text"].encode()
    model = Ngram(None, None)
    width = model.vocab_size
    rows = memoryview(bytearray(4 * len(text) * width)).cast("f", (len(text), width))
    model.forward([(0, 0, list(text), len(text))], rows)
    reported = answer["logprobs"]["token_logprobs"]
    assert reported[0] is None
    assert len(reported) == len(text) == 9
    for position, own in enumerate(reported[1:]):
        logits = [rows[position, token] for token in range(width)]
        total = math.log(sum(math.exp(logit) for logit in logits))
        assert own == pytest.approx(logits[text[position + 1]] - total, abs=1e-4)


def test_constrained_answers_are_valid(server: ServerProcess) -> None:
    client = OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)
    for seed in range(4):
        answer = client.chat.completions.create(
            model="sim-model",
            messages=[{"role": "user", "content": "Who?"}],
            extra_body={"response_format": PERSON_FORMAT},
            temperature=1.5,
            seed=seed,
            n=5,
            max_tokens=60,
        )
        assert len(answer.choices) == 5
        for choice in answer.choices:
            jsonschema.validate(json.loads(choice.message.content or ""), PERSON)


def test_seeds_neighbours_and_slots(server: ServerProcess) -> None:
    body = chat(max_tokens=30, temperature=1.0, ignore_eos=True, n=7)
    first = [choice["message"]["content"] for choice in ok(post(server, CHAT, body))["choices"]]
    assert len(set(first)) == 7
    assert [choice["message"]["content"] for choice in ok(post(server, CHAT, body))["choices"]] == first
    alone = chat(max_tokens=30, temperature=1.0, ignore_eos=True)
    assert text_of(ok(post(server, CHAT, alone))) == first[0]


def test_processors_and_beams(server: ServerProcess) -> None:
    said = [{"name": "Say", "args": {"text": "hello"}}]
    assert ok(complete(server, "the", max_tokens=5, logits_processors=said))["choices"][0]["text"] == "hello"
    found = ok(complete(server, "the quick br", max_tokens=8, use_beam_search=True, n=2))["choices"]
    assert found[0]["text"] == "own fox "
    assert found[1]["text"] != found[0]["text"]


@pytest.mark.parametrize(
    ("prompt", "code", "message"),
    [
        ("please fail", "forward_pass", "the engine failed in a forward pass with this request"),
        ("please return", "forward_pass", "the engine failed in a forward pass with this request"),
        ("please forget", "not_finite", "not a number"),
    ],
)
def test_a_pass_that_fails_ends_its_requests(
    server: ServerProcess, prompt: str, code: str, message: str
) -> None:
    response = complete(server, prompt, max_tokens=5)
    error = error_of(response, 500)
    assert (error["code"], message in error["message"]) == (code, True), error
    assert response.headers["x-should-retry"] == "false"
    assert ok(complete(server, "the quick br", max_tokens=3))["choices"][0]["text"] == "own"
    if prompt == "please fail":
        assert "a secret of the operator" in server.output


def test_a_client_that_leaves_frees_its_slot(server: ServerProcess) -> None:
    body = {"model": "sim-model", "prompt": "the", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.base_url + COMPLETIONS, json=body, timeout=60) as response:
        next(response.iter_lines())
    wait_until(lambda: metric(server, "llgtrt_num_requests_running") == 0, "the sequence ended")


def test_an_engine_that_ends_ends_the_process(tmp_path: Path) -> None:
    with ServerProcess(*arguments(tmp_path)) as process:
        error = error_of(complete(process, "please exit", max_tokens=5), 503)
        assert error["code"] == "engine_failed"
        assert process.process.wait(60) != 0
        assert "the Python engine has ended" in process.output


def test_it_is_closed_at_the_end(tmp_path: Path) -> None:
    with ServerProcess(*arguments(tmp_path)) as process:
        ok(complete(process, "the quick br", max_tokens=3))
        process.process.terminate()
        assert process.process.wait(60) == 0
        assert "the engine was closed, with 0 tokens held" in process.output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoForward", "is no class with a method forward"),
        ("Nobody", "has no Nobody"),
        ("NoVocabulary", "the Python engine's vocab_size is missing"),
        ("Small", "the tokenizer has 260 tokens and the Python engine 256"),
        ("Breaks", "RuntimeError: no weights here"),
    ],
)
def test_what_is_wrong_with_a_class(tmp_path: Path, name: str, message: str) -> None:
    run = run_llgtrt(*arguments(tmp_path, name), "--port", "0")
    assert run.returncode == 1
    assert message in run.stderr


def test_a_name_and_the_backend_go_together() -> None:
    for given in (["--backend", "python"], ["--backend", "sim", "--engine-class", "ngram"]):
        run = run_llgtrt(*given, "--port", "0")
        assert run.returncode == 1
        assert "an engine in Python needs both" in run.stderr
    run = run_llgtrt("--engine-class", "nobody", "--port", "0")
    assert "no entry point 'nobody' in the group llgtrt.engines" in run.stderr
