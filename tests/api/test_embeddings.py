"""/v1/embeddings and /v1/rerank over the sim engine, with the stock client."""

from __future__ import annotations

import base64
import math
import struct
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from support.api import error_of, ok
from support.openapi import validate_answer
from support.server import wait_until
from support.sim import StartServer
from support.tiny_bert import CONTEXT, WIDTH, Bert

EMBEDDINGS = "/v1/embeddings"
RERANK = "/v1/rerank"
TEXTS = ["cats sleep on the house", "dogs run", "a", "the red tree and the blue tree"]


def embed(http: httpx.Client, value: Any, **fields: Any) -> list[list[float]]:
    """The vectors of a request, in order."""
    body = ok(http.post(EMBEDDINGS, json={"input": value, **fields}))
    assert [one["index"] for one in body["data"]] == list(range(len(body["data"])))
    return [one["embedding"] for one in body["data"]]


def test_the_stock_client_gets_the_same_in_both_formats(openai: OpenAI, http: httpx.Client) -> None:
    # The client asks for base64 unless it is told otherwise.
    packed = openai.embeddings.create(model="sim-model", input=TEXTS)
    plain = openai.embeddings.create(model="sim-model", input=TEXTS, encoding_format="float")
    assert packed.model == plain.model == "sim-model"
    assert packed.usage == plain.usage
    assert [one.index for one in packed.data] == [0, 1, 2, 3]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-7)
        assert math.hypot(*one.embedding) == pytest.approx(1, abs=1e-5)
    raw = ok(http.post(EMBEDDINGS, json={"input": TEXTS[0], "encoding_format": "base64"}))
    data = base64.b64decode(raw["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == packed.data[0].embedding


def test_every_form_of_input(http: httpx.Client) -> None:
    tokens = ok(http.post("/tokenize", json={"prompt": TEXTS[0], "add_special_tokens": False}))["tokens"]
    [text] = embed(http, TEXTS[0])
    assert embed(http, [TEXTS[0]]) == embed(http, tokens) == embed(http, [tokens]) == [text]
    assert embed(http, [tokens, tokens[:3]])[0] == text
    usage = ok(http.post(EMBEDDINGS, json={"input": [tokens, tokens[:3]]}))["usage"]
    assert usage == {"prompt_tokens": len(tokens) + 3, "total_tokens": len(tokens) + 3}
    many = embed(http, [TEXTS[index % 4] for index in range(2048)])
    assert many == embed(http, TEXTS) * 512


def test_dimensions_are_the_first_ones_with_length_one(http: httpx.Client) -> None:
    [whole] = embed(http, TEXTS[0])
    [cut] = embed(http, TEXTS[0], dimensions=5)
    length = math.hypot(*whole[:5])
    assert cut == pytest.approx([value / length for value in whole[:5]], abs=1e-6)
    error = error_of(http.post(EMBEDDINGS, json={"input": "a", "dimensions": len(whole) + 1}))
    assert error["param"] == "dimensions"
    assert str(len(whole)) in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 3]}, "input[1]"),
        ({"input": [3, "a"]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": [[1], [2**31]]}, "input[1][0]"),
        ({"input": [-1]}, "input[0]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": ["a", "a" * 5000]}, "input[1]"),
        ({"input": [65] * 5000}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": "a", "encoding_format": "binary"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 1.5}, "dimensions"),
    ],
)
def test_what_is_refused_is_named(http: httpx.Client, body: dict[str, Any], param: str) -> None:
    error = error_of(http.post(EMBEDDINGS, json=body))
    assert error["param"] == param
    if len(str(body)) > 5000 and param != "input[1]" and body["input"][0] == 65:
        assert error["code"] == "context_length_exceeded"


def test_another_model_is_not_found(openai: OpenAI, http: httpx.Client) -> None:
    with pytest.raises(NotFoundError):
        openai.embeddings.create(model="text-embedding-3-small", input="a")
    for path in (EMBEDDINGS, RERANK):
        body = {"input": "a", "query": "a", "documents": ["a"], "model": "other"}
        assert error_of(http.post(path, json=body), 404)["code"] == "model_not_found"


def test_the_answer_is_what_openai_describes(http: httpx.Client) -> None:
    for body in ({"input": TEXTS}, {"input": TEXTS[0], "dimensions": 3}, {"input": ""}):
        response = http.post(EMBEDDINGS, json=body)
        kind = response.headers["content-type"]
        assert validate_answer(EMBEDDINGS, response.status_code, kind, response.content) == 1


def rerank(http: httpx.Client, path: str = RERANK, **fields: Any) -> dict[str, Any]:
    """The answer to a query for cats."""
    body = {"query": "cats", "documents": ["xyz", "cats", {"text": "cogs"}], **fields}
    return ok(http.post(path, json=body))


def test_documents_come_best_first(http: httpx.Client) -> None:
    answer = rerank(http)
    assert set(answer) == {"id", "object", "model", "results", "usage"}
    assert [one["index"] for one in answer["results"]] == [1, 2, 0]
    assert [one["document"] for one in answer["results"]] == [
        {"text": "cats"},
        {"text": "cogs"},
        {"text": "xyz"},
    ]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert 1 > scores[0] > scores[1] > scores[2] > 0
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 0
    raw = [one["relevance_score"] for one in rerank(http, raw_scores=True)["results"]]
    assert scores == pytest.approx([1 / (1 + math.exp(-score)) for score in raw])
    top = rerank(http, top_n=1, return_documents=False)["results"]
    assert [set(one) for one in top] == [{"index", "relevance_score"}]
    for path in ("/rerank", "/v2/rerank"):
        assert rerank(http, path)["results"] == answer["results"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": ""}, "query"),
        ({"query": None}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a", ""]}, "documents[1]"),
        ({"documents": ["a", {"title": "b"}]}, "documents[1].text"),
        ({"documents": ["a", "b" * 5000]}, "documents[1]"),
        ({"documents": ["a"] * 2049}, "documents"),
        ({"top_n": 0}, "top_n"),
    ],
)
def test_a_wrong_rerank_request_is_named(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    error = error_of(http.post(RERANK, json={"query": "a", "documents": ["a"], **fields}))
    assert error["param"] == param


def samples(http: httpx.Client) -> dict[str, float]:
    """Metrics without labels."""
    lines = http.get("/metrics").text.splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("llgtrt_embedding")}


def test_a_client_that_leaves_frees_the_embedder(start_server: StartServer) -> None:
    # 8 inputs a step of a tenth of a second: the first request would take almost half a minute.
    server = start_server(sim={"step_us": 100_000}, embedding={"max_queue_size": 1})
    with httpx.Client(base_url=server.base_url, timeout=30) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post(EMBEDDINGS, json={"input": ["a"] * 2048}, timeout=0.5)
        wait_until(lambda: http.post(EMBEDDINGS, json={"input": "b"}).status_code == 200, "a free place")
        counted = samples(http)
        assert counted["llgtrt_embedding_tokens_total"] < 2048
        assert counted["llgtrt_embedding_inputs_total"] >= 2049


def test_a_request_takes_no_longer_than_it_may(start_server: StartServer) -> None:
    server = start_server(sim={"step_us": 100_000}, server={"request_timeout_s": 0.5})
    with httpx.Client(base_url=server.base_url, timeout=30) as http:
        error_of(http.post(EMBEDDINGS, json={"input": ["a"] * 2048}), 504)
        assert len(embed(http, "b")) == 1


def test_a_full_queue_is_overload(start_server: StartServer) -> None:
    server = start_server(sim={"step_us": 300_000}, embedding={"max_queue_size": 1})
    with (
        httpx.Client(base_url=server.base_url, timeout=30) as http,
        httpx.Client(base_url=server.base_url, timeout=0.3) as hasty,
    ):
        with pytest.raises(httpx.ReadTimeout):
            hasty.post(EMBEDDINGS, json={"input": ["a"] * 1000})
        statuses = set()

        def refused_then_served() -> bool:
            statuses.add(http.post(EMBEDDINGS, json={"input": "b"}).status_code)
            return 200 in statuses

        wait_until(refused_then_served, "a free place")
        assert statuses <= {200, 503}


def test_a_model_of_its_own(start_server: StartServer, tmp_path: Path) -> None:
    for pooling, name in ((1, "mean"), (2, "cls")):
        bert = Bert.random(pooling)
        file = bert.write(tmp_path / f"tiny-{name}.gguf")
        server = start_server("--embedding-model", str(file))
        with OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as client:
            answer = client.embeddings.create(model=f"tiny-{name}", input=TEXTS)
            for text, one in zip(TEXTS, answer.data, strict=True):
                assert one.embedding == pytest.approx(bert.of_text(text), abs=2e-3)
            assert answer.usage.prompt_tokens == sum(len(bert.ids(text)) + 2 for text in TEXTS)
            assert len(answer.data[0].embedding) == WIDTH
            listed = {model.id: model.to_dict() for model in client.models.list()}
            assert listed[f"tiny-{name}"]["max_model_len"] == CONTEXT
            with pytest.raises(NotFoundError):
                client.embeddings.create(model="sim-model", input="a")
            with pytest.raises(NotFoundError):
                client.chat.completions.create(
                    model=f"tiny-{name}", messages=[{"role": "user", "content": "a"}]
                )
            with pytest.raises(BadRequestError, match="maximum context length is 48"):
                client.embeddings.create(model=f"tiny-{name}", input="the " * 47)
            whole = "the " * 46
            [longest] = client.embeddings.create(model=f"tiny-{name}", input=whole).data
            assert longest.embedding == pytest.approx(bert.of_text(whole), abs=2e-3)
            # What the tokenizer puts around a text counts, and stays.
            for most, kept in ((6, "the " * 4), (-1, whole)):
                [cut] = client.embeddings.create(
                    model=f"tiny-{name}", input="the " * 900, extra_body={"truncate_prompt_tokens": most}
                ).data
                assert cut.embedding == pytest.approx(bert.of_text(kept), abs=2e-3)
            with pytest.raises(BadRequestError, match="no room"):
                client.embeddings.create(
                    model=f"tiny-{name}", input="the", extra_body={"truncate_prompt_tokens": 2}
                )
        with httpx.Client(base_url=server.base_url) as http:
            error = error_of(http.post(RERANK, json={"query": "a", "documents": ["b"]}))
            assert error["code"] == "not_supported"
            assert "--embedding-model" in error["message"]


def test_a_reranker(start_server: StartServer, tmp_path: Path) -> None:
    bert = Bert.random(4)
    server = start_server("--embedding-model", str(bert.write(tmp_path / "ranker.gguf")))
    query = "red house"
    with httpx.Client(base_url=server.base_url, timeout=30) as http:
        body = {"query": query, "documents": TEXTS, "raw_scores": True}
        results = ok(http.post(RERANK, json=body))["results"]
        expected = [bert.of_pair(query, text) for text in TEXTS]
        assert max(expected) - min(expected) > 0.05, "the test tells nothing"
        for one in results:
            assert one["relevance_score"] == pytest.approx(expected[one["index"]], abs=2e-2)
        assert [one["index"] for one in results] == list(np.argsort(expected)[::-1])
        error = error_of(http.post(EMBEDDINGS, json={"input": "a"}))
        assert error["code"] == "not_supported"
        # The document loses its end, not the query.
        long = {**body, "documents": ["dogs run " * 100], "truncate_prompt_tokens": 2 + 3 + 4}
        [cut] = ok(http.post(RERANK, json=long))["results"]
        assert cut["relevance_score"] == pytest.approx(bert.of_pair(query, "dogs run dogs run"), abs=2e-2)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all"])
def test_an_unusable_model_ends_the_start(start_server: StartServer, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    server = start_server("--embedding-model", str(file), wait=False)
    assert server.wait_exit() != 0
    assert "broken.gguf" in server.output
