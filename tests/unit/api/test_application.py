"""Routes, the key, CORS, error forms, bodies, probes."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator
from starlette.routing import Route

from llgtrt.api import grammar, health, openai, triton, triton_model, triton_repository
from llgtrt.api.apis import router_of
from llgtrt.api.auth import OPEN_PATHS
from llgtrt.api.error_forms import ERROR_FORMS, form_of_path
from llgtrt.api.errors import RequestTimeoutError, describe, error_event, error_response
from llgtrt.api.routing import PlainRoute
from llgtrt.engine import (
    EngineFailedError,
    GrammarError,
    InvalidRequestError,
    NotFiniteError,
    OverloadedError,
    ShuttingDownError,
    new_error,
)
from llgtrt.logs import TextFormatter
from llgtrt.serving import Failure
from support.asgi import AsgiCall
from support.fake_engine import AppFactory, FakeNativeEngine

KEY = "Secret-Key"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
TOOL = {"type": "function", "function": {"name": "f"}}
ROUTE = "/v1/chat/completions"


def client(app: FastAPI, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers)


def assert_error(response: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """Checks the status and OpenAI's form of an error, and gives the error."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    if code is not None:
        assert body["error"]["code"] == code
    error: dict[str, Any] = body["error"]
    return error


def test_endpoints_take_the_request_and_nothing_else(make_app: AppFactory) -> None:
    routes = [route for route in make_app().routes if isinstance(route, APIRoute)]
    assert {"/v1/chat/completions", "/v1/health/live", "/v2/models/{name:path}/infer"} <= {
        r.path for r in routes
    }
    for route in routes:
        assert isinstance(route, PlainRoute), route.path
        assert inspect.iscoroutinefunction(route.endpoint), route.path
        assert len(inspect.signature(route.endpoint).parameters) == 1, route.path


async def test_p24_every_route_needs_the_key_but_the_two_probes(make_app: AppFactory) -> None:
    app = make_app(api_key=KEY)
    # Newer versions of FastAPI keep included routers apart, so the routers are asked as well.
    routers = (
        app,
        openai.router,
        grammar.router,
        health.router,
        triton.router,
        triton_model.router,
        triton_repository.router,
    )
    candidates = [route for router in routers for route in router.routes]
    candidates += [route for api in app.state.services.apis for route in router_of(api).routes]
    routes = [route for route in candidates if isinstance(route, APIRoute | Route)]
    assert set(app.openapi()["paths"]) <= {route.path.replace(":path", "") for route in routes}
    assert {"/openapi.json", "/docs", "/metrics", "/health"} <= {route.path for route in routes}
    async with client(app) as http:
        for route in routes:
            path = route.path.replace("{name:path}", "fake")
            for method in route.methods or ():
                response = await http.request(method, path)
                if path in OPEN_PATHS:
                    assert response.status_code == 200, path
                else:
                    assert response.status_code == 401, path
    probes = {f"/{version}/health/{probe}" for version in ("v1", "v2") for probe in ("live", "ready")}
    assert {"/docs", "/health", "/openapi.json", "/ping", *probes} == OPEN_PATHS
    assert {route.path for route in routes} >= OPEN_PATHS


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer {KEY}", 200),
        (f"Bearer {KEY.lower()}", 401),
        (f"Bearer {KEY}x", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        (f"Basic {KEY}", 401),
        (KEY, 401),
        ("Bearer ключ", 401),
        ("", 401),
    ],
)
async def test_p24_the_key_is_compared_exactly(make_app: AppFactory, header: str, status: int) -> None:
    async with client(make_app(api_key=KEY)) as http:
        response = await http.get("/v1/models", headers=[(b"authorization", header.encode())])
        assert response.status_code == status
        if status == 401:
            assert_error(response, 401, "invalid_api_key")
            assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/v1/health/live/", "/v1/health/live/x", "//v1/health/live", "/V1/health/live", "/nothing"]
)
async def test_p24_paths_near_a_probe_need_the_key(make_app: AppFactory, path: str) -> None:
    async with AsgiCall(make_app(api_key=KEY), path, method="GET") as call:
        await call.done()
    assert call.status == 401


async def test_p24_two_authorization_headers_are_refused(make_app: AppFactory) -> None:
    headers = [("authorization", "Bearer wrong"), ("authorization", f"Bearer {KEY}")]
    async with AsgiCall(make_app(api_key=KEY), "/v1/models", method="GET", headers=headers) as call:
        await call.done()
    assert call.status == 401


async def test_p24_preflight_needs_no_key(make_app: AppFactory) -> None:
    app = make_app(api_key=KEY, cors_origins=["https://page.example"])
    headers = {"origin": "https://page.example", "access-control-request-method": "POST"}
    async with client(app) as http:
        response = await http.options(
            ROUTE, headers={**headers, "access-control-request-headers": "authorization,content-type"}
        )
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://page.example"
        assert "authorization" in response.headers["access-control-allow-headers"].lower()
        refused = await http.post(ROUTE, json=CHAT, headers={"origin": "https://page.example"})
        assert_error(refused, 401)
        assert refused.headers["access-control-allow-origin"] == "https://page.example"
        other = await http.get("/v1/health/live", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


async def test_p18_every_error_has_the_same_form(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app(max_body_bytes=1000)
    async with client(app) as http:
        assert_error(await http.get("/v1/nothing"), 404, "not_found")
        assert_error(await http.get("/v1/models/other"), 404, "model_not_found")
        assert_error(await http.post(ROUTE, json={**CHAT, "model": "other"}), 404, "model_not_found")
        assert_error(await http.get(ROUTE), 405)
        assert_error(await http.delete("/v1/models"), 405)
        assert_error(await http.post(ROUTE, content=b"x" * 1001), 413)
        assert_error(await http.post(ROUTE, content=b"a=b", headers={"content-type": "text/plain"}), 415)
        assert_error(await http.post(ROUTE, content=b"{"), 400, "invalid_json")
        assert_error(await http.post(ROUTE, json={"messages": []}), 400)
        assert_error(await http.post("/v1/completions", json={}), 400)


async def test_422_does_not_exist(make_app: AppFactory) -> None:
    document = make_app().openapi()
    statuses = {
        status
        for path in document["paths"].values()
        for operation in path.values()
        for status in operation["responses"]
    }
    assert "422" not in statuses


async def test_the_openapi_document_describes_the_bodies(make_app: AppFactory) -> None:
    document = make_app(api_key=KEY).openapi()
    for path, name in ((ROUTE, "ChatRequest"), ("/v1/completions", "CompletionRequest")):
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{name}"}
        assert "response_format" in document["components"]["schemas"][name]["properties"]
    assert "messages" in document["components"]["schemas"]["ChatRequest"]["required"]
    assert document["security"]


async def test_an_unhandled_exception_is_a_500(
    make_app: AppFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(type(app.state.services.models.find(None).model), "object", fail)
    async with client(app) as http:
        response = await http.get("/v1/models")
        assert_error(response, 500, "internal_error")
        assert "secret" not in response.text
        assert (await http.get("/v1/health/live")).status_code == 200
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 400),
        ("application/json; charset=utf-8", 400),
        ("Application/JSON", 400),
        ("application/vnd.api+json", 400),
        ("application/json; charset=utf-16", 415),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
async def test_content_types(make_app: AppFactory, content_type: str, status: int) -> None:
    async with client(make_app()) as http:
        response = await http.post(ROUTE, content=b"{}", headers={"content-type": content_type})
        assert_error(response, status)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
async def test_encoded_bodies_are_refused(make_app: AppFactory, encoding: str) -> None:
    async with client(make_app()) as http:
        assert_error(await http.post(ROUTE, content=b"{}", headers={"content-encoding": encoding}), 415)


async def test_a_large_body_without_a_length_is_refused(make_app: AppFactory) -> None:
    chunks = [b" " * 100 for _ in range(1000)]
    async with AsgiCall(make_app(max_body_bytes=1000), ROUTE, chunks=chunks) as call:
        await call.done()
    assert call.status == 413


async def test_a_body_in_many_small_pieces_is_joined(make_app: AppFactory) -> None:
    body = b'{"messages": []}' + b" " * 10_000
    chunks = [body[index : index + 1] for index in range(len(body))]
    async with AsgiCall(make_app(), ROUTE, chunks=chunks) as call:
        await call.done()
    assert call.status == 400
    assert call.error["param"] == "messages"


async def test_a_body_that_does_not_arrive(make_app: AppFactory) -> None:
    app = make_app(header_timeout_s=0.02)
    async with AsgiCall(app, ROUTE, chunks=[]) as call:
        await asyncio.wait([call.task], timeout=5)
    assert call.status == 408


async def test_a_client_that_leaves_while_sending(make_app: AppFactory) -> None:
    async with AsgiCall(make_app(), ROUTE, chunks=[]) as call:
        call.disconnect()
        await call.done()
    assert not call.started


async def test_p22_readiness_follows_the_engine(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with client(make_app()) as http:
        for path in ("/v1/health/ready", "/health"):
            native.state = ("ready", "")
            assert (await http.get(path)).status_code == 200
            for state in ("draining", "stalled", "failed"):
                native.state = (state, "why")
                assert_error(await http.get(path), 503, f"not_ready_{state}")
            assert (await http.get("/v1/health/live")).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/health/live",
        "/v1/health/ready",
        "/v1/models",
        "/v1/models/fake",
        "/v2/health/live",
        "/v2/health/ready",
    ],
)
async def test_head_is_answered_like_get(make_app: AppFactory, path: str) -> None:
    async with client(make_app()) as http:
        assert (await http.head(path)).status_code == 200


async def test_request_ids(make_app: AppFactory) -> None:
    async with client(make_app()) as http:
        first = await http.get("/v1/health/live")
        second = await http.get("/v1/health/live")
        assert first.headers["x-request-id"] != second.headers["x-request-id"]
        echoed = await http.get("/v1/health/live", headers={"x-request-id": "abc-1"})
        assert echoed.headers["x-request-id"] == "abc-1"
        for bad in ("x" * 1000, "a b", "é"):
            response = await http.get("/v1/health/live", headers=[(b"x-request-id", bad.encode())])
            assert response.headers["x-request-id"] != bad


async def test_the_models_route(make_app: AppFactory) -> None:
    async with client(make_app()) as http:
        listed = (await http.get("/v1/models")).json()
        assert listed["object"] == "list"
        assert listed["data"][0]["id"] == "fake"
        assert (await http.get("/v1/models/fake")).json() == listed["data"][0]


async def test_metrics_count_requests_by_route(make_app: AppFactory) -> None:
    async with client(make_app()) as http:
        await http.get("/v1/models")
        await http.get("/v1/models/fake")
        await http.get("/wp-login.php")
        response = await http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    text = response.text
    assert text.startswith("# fake\n")
    assert 'llgtrt_http_requests_total{method="GET",route="/v1/models",status="200"} 1.0' in text
    assert 'route="/v1/models/{name:path}",status="200"} 1.0' in text
    assert 'route="unknown",status="404"} 1.0' in text
    assert "wp-login" not in text


async def test_the_request_log_holds_no_content(
    make_app: AppFactory, native: FakeNativeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app = make_app(log_requests=True, api_key=KEY)
    native.places = 0
    body = {"messages": [{"role": "user", "content": "a private question"}]}
    async with client(app, authorization=f"Bearer {KEY}") as http:
        await http.post(ROUTE, json=body)
        await http.post("/v1/x%0d%0ay?secret=1", json=body)
    records = [record for record in caplog.records if record.name == "llgtrt.requests"]
    assert len(records) == 2
    lines = [TextFormatter().format(record) for record in records]
    text = caplog.text + "\n".join(lines)
    assert "path=/v1/chat/completions status=503" in lines[0]
    assert "error=overloaded" in lines[0]
    assert "secret" not in lines[1]
    assert "private" not in text
    assert KEY not in text
    assert not any("\r" in line or "\n" in line for line in lines)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": ""}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
            "tools[0].function.parameters.type",
        ),
        ({"tools": [TOOL], "functions": [{"name": "f"}]}, "functions"),
        ({"tools": [TOOL], "tool_choice": "f"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x"}}},
            "tool_choice.allowed_tools.mode",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{}]}}},
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call.name"),
        ({"functions": [{"name": "f"}, {"name": "f"}]}, "functions[1].name"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"bad_words": "no"}, "bad_words"),
        ({"priority": 1.5}, "priority"),
        ({"cache_salt": ""}, "cache_salt"),
        (
            {"kv_cache_retention": {"decode_duration_ms": 1}},
            "kv_cache_retention.decode_duration_ms",
        ),
        (
            {"kv_cache_retention": {"token_range_retention_configs": [{"token_start": 0, "priority": 101}]}},
            "kv_cache_retention.token_range_retention_configs[0].priority",
        ),
        ({"kv_cache_retention": {"ranges": []}}, "kv_cache_retention.ranges"),
        ({"n": 129}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": 2**63}, "n"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_tokens"),
        ({"echo": True}, "echo"),
        ({"min_tokens": 5, "max_tokens": 9, "max_completion_tokens": 4}, "min_tokens"),
        ({"logit_bias": {"100": 1}}, "logit_bias.100"),
        ({"stop_token_ids": [3, 100]}, "stop_token_ids[1]"),
        ({"chat_template_kwargs": {"nothing": 1}}, "chat_template_kwargs"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "a king", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
async def test_unsupported_and_contradicting_fields(
    make_app: AppFactory, native: FakeNativeEngine, fields: dict[str, Any], param: str
) -> None:
    async with client(make_app()) as http:
        error = assert_error(await http.post(ROUTE, json={**CHAT, **fields}), 400)
    assert error["param"] == param
    assert not native.handles


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 3, "n": 2, "echo": True}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [100]}, "prompt[0]"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a", "b"], "n": 100}, "n"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "echo": True, "guided_regex": "a"}, "max_tokens"),
        ({"tools": None, "guided_x": 1}, "guided_x"),
    ],
)
async def test_completion_fields(
    make_app: AppFactory, native: FakeNativeEngine, fields: dict[str, Any], param: str
) -> None:
    async with client(make_app()) as http:
        error = assert_error(await http.post("/v1/completions", json={"prompt": "a", **fields}), 400)
    assert error["param"] == param
    assert not native.handles


async def test_an_unknown_route_says_where_the_api_is(make_app: AppFactory) -> None:
    async with client(make_app()) as http:
        error = assert_error(await http.post("/chat/complete", json=CHAT), 404, "not_found")
        assert "'/chat/complete'" in error["message"]
        assert "/v1/chat/completions" in error["message"]
        error = assert_error(await http.get(ROUTE), 405)
        assert ROUTE in error["message"]


async def test_a_bad_parameter_of_a_route_is_a_400(make_app: AppFactory) -> None:
    app = make_app()

    @app.get("/counts")
    async def counts(count: int) -> int:
        return count

    async with client(app) as http:
        error = assert_error(await http.get("/counts?count=x"), 400)
        assert error["param"] == "query.count"
        assert error["message"].startswith("query.count: ")


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (RequestTimeoutError(), 504, {"x-should-retry": "false"}),
        (MemoryError(), 503, {"retry-after": "1"}),
        (new_error(NotFiniteError, "no"), 500, {"x-should-retry": "false"}),
        (new_error(OverloadedError, "no"), 503, {"retry-after": "1"}),
        (new_error(ShuttingDownError, "no"), 503, {"retry-after": "5"}),
        (new_error(EngineFailedError, "no"), 503, {"retry-after": "5"}),
        (new_error(InvalidRequestError, "no"), 400, {}),
    ],
)
def test_clients_are_told_whether_to_try_again(
    error: Exception, status: int, headers: dict[str, str]
) -> None:
    response = error_response(error)
    assert response.status_code == status
    found = {name: value for name, value in response.headers.items() if "retry" in name}
    assert found == headers


def test_the_message_about_a_grammar_says_where() -> None:
    error = new_error(GrammarError, "not supported", "guided_json.properties.a")
    assert describe(error)[0].message == "guided_json.properties.a: not supported"


def test_an_error_event_ends_the_stream_as_clients_expect() -> None:
    assert error_event(describe(RequestTimeoutError())[0]).endswith(b"}\n\ndata: [DONE]\n\n")


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def takes_errors(document: dict[str, Any], path: str, app: FastAPI, schema: dict[str, Any]) -> bool:
    """Whether a response's schema describes the errors of its route, and no more than these."""
    form = form_of_path(path, getattr(app.state, ERROR_FORMS))
    validator = Draft202012Validator({**schema, "components": document["components"]})
    errors = (Failure(400, "a", "b"), Failure(400, "a", "b", "c", "d"))
    return all(validator.is_valid(form(error)) for error in errors) and not validator.is_valid({"error": 1})


async def test_the_openapi_document_is_whole(make_app: AppFactory) -> None:
    app = make_app(api_key=KEY)
    document = app.openapi()
    assert document["openapi"].startswith("3.1")
    for reference in references(document):
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            assert {"200", "401", "500"} <= set(operation["responses"])
            for status, response in operation["responses"].items():
                assert response["description"]
                contents = response.get("content", {})
                is_error = any(takes_errors(document, path, app, one["schema"]) for one in contents.values())
                assert is_error == (status != "200"), (path, status)
    assert set(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == {"text/plain"}
    chat = document["paths"][ROUTE]["post"]["responses"]
    assert {"400", "404", "408", "413", "415", "503", "504"} <= set(chat)
    assert set(chat["200"]["content"]) == {"application/json", "text/event-stream"}


async def test_the_documentation_needs_neither_a_key_nor_another_server(make_app: AppFactory) -> None:
    async with client(make_app(api_key=KEY)) as http:
        page = await http.get("/docs")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert ROUTE in page.text
        assert "max_completion_tokens" in page.text
        assert "<script" not in page.text
        assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page.text)
        assert (await http.get("/openapi.json")).status_code == 200
        assert (await http.get("/redoc")).status_code == 401
