"""Seeds, choices, names of models and routes (P29)."""

from __future__ import annotations

from typing import Any

import httpx

from support.api import CHAT, COMPLETIONS, chat, ok
from support.sim import StartServer


def test_any_name_can_be_allowed(start_server: StartServer) -> None:
    server = start_server("--served-model-name", "*")
    with httpx.Client(base_url=server.base_url) as client:
        assert ok(client.post(CHAT, json=chat(model="gpt-4o-mini")))["model"] == "gpt-4o-mini"
        assert ok(client.get("/v1/models"))["data"][0]["id"] == "sim-model"
        assert ok(client.post(CHAT, json=chat(model="")))["model"] == "sim-model"


def test_p29_seeds(http: httpx.Client) -> None:
    def texts(**fields: Any) -> list[str]:
        body = ok(http.post(CHAT, json=chat(**fields)))
        return [choice["message"]["content"] for choice in body["choices"]]

    assert texts(seed=5) == texts(seed=5)
    assert texts(seed=5, n=3) == [*texts(seed=5), *texts(seed=6), *texts(seed=7)]
    assert len(set(texts(seed=5, n=4))) == 4
    assert len(set(texts(seed=None, n=4))) == 4
    assert texts(seed=None) != texts(seed=None)
    assert texts(seed=-1) == texts(seed=-1)
    assert texts(seed=2**63 - 1, n=2)


def test_completions_in_every_form(http: httpx.Client) -> None:
    def texts(prompt: Any, **fields: Any) -> list[str]:
        body = ok(http.post(COMPLETIONS, json={"prompt": prompt, "seed": 1, **fields}))
        assert body["object"] == "text_completion"
        assert body["id"].startswith("cmpl-")
        return [choice["text"] for choice in body["choices"]]

    assert texts("Go") == texts(["Go"])
    # Token ids are taken as they are, without a beginning-of-text token.
    assert texts([71, 111]) == texts([[71, 111]])
    assert texts(["Go", "Go"])[0] == texts("Go")[0]
    assert [text.startswith("Go") for text in texts(["Go", "Stop"], echo=True)] == [True, False]


def test_the_model_probe_generates(http: httpx.Client) -> None:
    assert ok(http.get("/v1/health/model"))["usage"]["completion_tokens"] == 1


def test_a_root_path_is_added_by_a_proxy(start_server: StartServer) -> None:
    # The proxy strips the prefix, so the server is asked without it.
    server = start_server("--api-key", "k", server={"root_path": "/llm"})
    assert server.get("/v1/health/live").status_code == 200
    assert server.get("/v1/models").status_code == 401
    response = httpx.get(server.base_url + "/v1/models", headers={"authorization": "Bearer k"})
    assert response.status_code == 200


def test_routes_without_the_prefix(http: httpx.Client) -> None:
    assert ok(http.post("/chat/completions", json=chat(max_tokens=2)))["choices"]
    assert ok(http.post("/completions", json={"prompt": "Once", "max_tokens": 2}))["choices"]
    assert ok(http.get("/models"))["data"][0]["id"] == "sim-model"
    assert set(ok(http.get("/version"))) == {"version"}
    assert ok(http.get("/ping")) == {"status": "ready"}


def test_a_configured_seed_repeats_the_answers_of_requests_without_one(start_server: StartServer) -> None:
    def answers(seed: int) -> list[str]:
        server = start_server(runtime={"seed": seed})
        with httpx.Client(base_url=server.base_url) as client:
            bodies = [ok(client.post(CHAT, json=chat(seed=None))) for _ in range(3)]
        return [body["choices"][0]["message"]["content"] for body in bodies]

    first = answers(7)
    assert len(set(first)) == 3
    assert answers(7) == first
    assert not set(answers(8)) & set(first)
