"""The stock OpenAI client before NVIDIA Dynamo's own frontend, with two workers of ours behind it."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from cluster import Cluster, Worker, wait_until

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {
            "type": "array",
            "minItems": 2,
            "maxItems": 3,
            "uniqueItems": True,
            "items": {"enum": ["a", "b", "c"]},
        },
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
LONG_SCHEMA = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 9},
    "minItems": 60,
    "maxItems": 60,
}
SIM = ("--backend", "sim", "--served-model-name", "sim", "--set", "runtime.max_seq_len=2048")
SLOW = ("--set", "sim.step_us=30000", "--set", "runtime.max_batch_size=8", "--set", "sim.fast_forward=false")


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with the simulated engine."""
    cluster = Cluster(tmp_path_factory.mktemp("sim"))
    try:
        for _ in range(2):
            cluster.add(*SIM)
        cluster.wait_for_model("sim", 2)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with the demo model."""
    cluster = Cluster(tmp_path_factory.mktemp("demo"))
    try:
        for _ in range(2):
            cluster.add("--served-model-name", "demo", "--set", "runtime.max_seq_len=1024", "--threads", "1")
        cluster.wait_for_model("demo", 2)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Cluster]:
    """Two workers that take 30 ms for a token, and a frontend that migrates requests."""
    cluster = Cluster(tmp_path, "--migration-limit", "3")
    try:
        for _ in range(2):
            cluster.add(*SIM, *SLOW)
        cluster.wait_for_model("sim", 2)
        yield cluster
    finally:
        cluster.stop()


def client(cluster: Cluster) -> openai.OpenAI:
    return openai.OpenAI(base_url=cluster.base_url, api_key="none", max_retries=0, timeout=200)


def chat(cluster: Cluster, model: str, text: str = "A person.", **fields: Any) -> Any:
    with client(cluster) as one:
        return one.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], **fields
        )


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def content(response: Any) -> str:
    assert response.choices[0].finish_reason in ("stop", "length")
    text: str = response.choices[0].message.content
    return text


def both(cluster: Cluster) -> None:
    """Both workers took part."""
    for worker in cluster.workers:
        counted = [
            line
            for line in worker.get("/metrics")[1].splitlines()
            if line.startswith("llgtrt_generation_tokens")
        ]
        assert counted
        assert float(counted[0].rsplit(" ", 1)[1]) > 1


@pytest.mark.parametrize(("name", "count"), [("sim", 40), ("demo", 8)])
def test_every_answer_satisfies_its_constraint(name: str, count: int, request: pytest.FixtureRequest) -> None:
    cluster: Cluster = request.getfixturevalue(name)

    def judge(index: int) -> None:
        common: dict[str, Any] = {"max_tokens": 120, "seed": index, "temperature": 0.8}
        jsonschema.validate(
            json.loads(content(chat(cluster, name, response_format=schema_format(SCHEMA), **common))), SCHEMA
        )
        text = content(chat(cluster, name, extra_body={"guided_regex": "[A-C]{2}-[0-9]{3,5}"}, **common))
        assert re.fullmatch("[A-C]{2}-[0-9]{3,5}", text)
        assert content(chat(cluster, name, extra_body={"guided_choice": ["yes", "no"]}, **common)) in (
            "yes",
            "no",
        )
        grammar = 'start: "<" /[a-z]{1,9}/ ">"'
        text = content(chat(cluster, name, extra_body={"guided_grammar": grammar}, **common))
        assert re.fullmatch("<[a-z]{1,9}>", text)
        assert isinstance(
            json.loads(content(chat(cluster, name, response_format={"type": "json_object"}, **common))), dict
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(judge, range(count)))
    both(cluster)


def test_the_demo_model_reads_what_the_frontend_tokenized(demo: Cluster) -> None:
    response = chat(demo, "demo", "What is the capital of France?", max_tokens=24, temperature=0)
    # As many as the engine counts in what its own template makes of it.
    assert response.usage.prompt_tokens == 37
    again = chat(demo, "demo", "What is the capital of France?", max_tokens=24, temperature=0)
    assert content(again) == content(response)
    third = chat(demo, "demo", "What is the capital of France?", max_tokens=24, temperature=0)
    # One of the workers has seen it before.
    assert third.usage.prompt_tokens_details.cached_tokens > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"response_format": schema_format({"properties": {"a": {"type": "stsring"}}})},
            "guided_decoding.json.properties.a",
        ),
        ({"extra_body": {"guided_regex": "("}}, "guided_decoding.regex"),
        ({"extra_body": {"guided_grammar": "start: missing"}}, "guided_decoding.grammar"),
        ({"max_tokens": 4000}, "maximum context length is 2048"),
        ({"extra_body": {"top_k": 3, "nvext": {"annotations": ["llgtrt:{}"]}}}, "annotations[0]"),
    ],
)
def test_what_cannot_be_enforced_is_a_400_that_says_where(
    sim: Cluster, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(sim, "sim", **fields)
    assert message in str(caught.value)


def test_a_prompt_over_the_context_is_a_400(sim: Cluster) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(sim, "sim", "x" * 3000)
    assert "context" in str(caught.value)


def test_choices_stops_and_log_probabilities(sim: Cluster) -> None:
    response = chat(sim, "sim", n=3, seed=5, max_tokens=20, logprobs=True, top_logprobs=2)
    assert len({choice.message.content for choice in response.choices}) == 3
    for choice in response.choices:
        entries = choice.logprobs.content
        assert "".join(entry.token for entry in entries) == choice.message.content
        assert all(len(entry.top_logprobs) == 2 and entry.logprob <= 0 for entry in entries)
    assert response.usage.completion_tokens <= 60
    text = content(chat(sim, "sim", seed=5, max_tokens=200))
    word = text.split()[3]
    stopped = content(chat(sim, "sim", seed=5, max_tokens=200, stop=[word]))
    assert stopped == text[: text.index(word)]


def test_tools_that_are_required_are_called(sim: Cluster) -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Paris"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    for seed in range(5):
        response = chat(sim, "sim", tools=tools, tool_choice="required", seed=seed, max_tokens=400)
        calls = response.choices[0].message.tool_calls
        assert calls
        for call in calls:
            assert call.function.name == "weather"
            jsonschema.validate(json.loads(call.function.arguments), parameters)


def test_the_runtimes_own_pages(sim: Cluster) -> None:
    worker = sim.workers[0]
    assert worker.get("/health")[0] == 200
    metrics = worker.get("/metrics")[1]
    assert "llgtrt_num_requests_running" in metrics
    assert "dynamo_component" in metrics


def endless(cluster: Cluster, **fields: Any) -> Any:
    common = {"ignore_eos": True, **fields.pop("extra_body", {})}
    return client(cluster).chat.completions.create(
        model="sim",
        messages=[{"role": "user", "content": "Go on."}],
        stream=True,
        extra_body=common,
        **fields,
    )


def test_a_client_that_leaves_frees_its_place(slow: Cluster) -> None:
    stream = endless(slow, max_tokens=1500)
    next(iter(stream))
    wait_until(lambda: sum(worker.requests() for worker in slow.workers) == 1, "it runs")
    stream.close()
    free = lambda: not any(worker.requests() for worker in slow.workers)  # noqa: E731
    wait_until(free, "its place is free", timeout_s=60)


def test_a_client_that_does_not_read_stops_nobody_else(tmp_path: Path) -> None:
    """More than all buffers between the worker and the client hold, one token a chunk."""
    cluster = Cluster(tmp_path)
    try:
        limits = ("--set", "runtime.max_batch_size=8", "--set", "runtime.max_seq_len=200000")
        worker = cluster.add(
            "--backend", "sim", "--served-model-name", "sim", "--set", "sim.step_us=100", *limits
        )
        cluster.wait_for_model("sim", 1)
        body = {
            "model": "sim",
            "messages": [{"role": "user", "content": "go on"}],
            "max_tokens": 100_000,
            "stream": True,
            "ignore_eos": True,
        }
        text = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Length: {len(text)}\r\n"
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", cluster.port))
            deaf.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + text)
            assert deaf.recv(15) == b"HTTP/1.1 200 OK"
            wait_until(lambda: worker.sample("llgtrt_generation_tokens_total") >= 100_000, "it is generated")
            wait_until(lambda: worker.requests() == 0, "its place is free")
            assert chat(cluster, "sim", max_tokens=5, timeout=30).usage.completion_tokens == 5
    finally:
        cluster.stop()


def test_a_worker_that_is_told_to_end_loses_no_request(slow: Cluster) -> None:
    ended = slow.workers[0]

    def ask(index: int) -> None:
        if index % 2:
            text = content(chat(slow, "sim", response_format=schema_format(LONG_SCHEMA), max_tokens=400))
            jsonschema.validate(json.loads(text), LONG_SCHEMA)
        else:
            extra = {"ignore_eos": True}
            response = chat(slow, "sim", max_tokens=100, extra_body=extra)
            assert response.usage.completion_tokens == 100

    with ThreadPoolExecutor(12) as pool:
        running = [pool.submit(ask, index) for index in range(12)]
        wait_until(lambda: all(worker.requests() >= 4 for worker in slow.workers), "both workers are busy")
        ended.send(signal.SIGTERM)
        wait_until(lambda: "draining" in ended.text(), "it drains", timeout_s=30)
        # Some that the frontend may still send to it.
        running += [pool.submit(ask, index) for index in range(4)]
        for one in running:
            one.result()
    assert ended.wait() == 0
    assert slow.workers[1].alive()


def busy_one(cluster: Cluster) -> Worker:
    return wait_until(lambda: next((w for w in cluster.workers if w.requests()), None), "one is busy")


def texts(stream: Any) -> Iterator[str]:
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def test_a_plain_request_survives_the_death_of_its_worker(slow: Cluster) -> None:
    stream = endless(slow, max_tokens=150)
    pieces = texts(stream)
    text = "".join(next(pieces) for _ in range(5))
    busy_one(slow).send(signal.SIGKILL)
    text += "".join(pieces)
    assert len(text) == 150, "the sim engine's tokens are bytes, and its words are ASCII"


def test_a_constrained_request_fails_with_its_worker_unless_it_is_annotated(slow: Cluster) -> None:
    """The frontend does not migrate what it knows to be constrained."""
    stream = endless(slow, max_tokens=400, response_format=schema_format(LONG_SCHEMA))
    pieces = texts(stream)
    next(pieces)
    busy_one(slow).send(signal.SIGKILL)
    with pytest.raises(openai.APIError) as caught:
        "".join(pieces)
    assert "unavailable" in str(caught.value)


def test_an_annotated_constrained_request_survives_the_death_of_its_worker(slow: Cluster) -> None:
    annotation = "llgtrt:" + json.dumps({"guided_decoding": {"json": LONG_SCHEMA}, "max_tokens": 400})
    stream = endless(slow, max_tokens=400, extra_body={"nvext": {"annotations": [annotation]}})
    pieces = texts(stream)
    text = "".join(next(pieces) for _ in range(20))
    busy_one(slow).send(signal.SIGKILL)
    text += "".join(pieces)
    jsonschema.validate(json.loads(text), LONG_SCHEMA)
