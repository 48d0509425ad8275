"""What OpenAI's protocol says, and the traps P1 to P8 and P17 to P29 that servers fall into."""

from __future__ import annotations

import json
import math
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from support.api import CHAT, COMPLETIONS, chat, chunks_of, error_of, finish_reasons, joined, ok, text_of
from support.server import ServerProcess
from support.sim import StartServer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 200},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def json_schema_format(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **fields}}


def stream_text(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return chunks_of(response.text)


# --- P1, P2: text ----------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["e", "th", [" ", "a"], ["never in there"], ["q", "qu", "que"]])
@pytest.mark.parametrize("seed", range(3))
def test_p1_stop_strings_do_not_leak(http: httpx.Client, stop: Any, seed: int) -> None:
    free = text_of(ok(http.post(CHAT, json=chat(seed=seed))))
    body = chat(seed=seed, stop=stop)
    whole = ok(http.post(CHAT, json=body))
    chunks = stream_text(http, CHAT, body)
    stops = [stop] if isinstance(stop, str) else stop
    cuts = [free.find(one) for one in stops if one in free]
    expected = free[: min(cuts)] if cuts else free
    assert text_of(whole) == expected
    assert joined(chunks) == expected
    assert finish_reasons(chunks)[0] == whole["choices"][0]["finish_reason"]
    if cuts:
        assert whole["choices"][0]["finish_reason"] == "stop"


def test_p1_the_stop_string_can_be_kept(http: httpx.Client) -> None:
    text = text_of(ok(http.post(CHAT, json=chat(stop=" ", include_stop_str_in_output=True))))
    assert text.endswith(" ")
    assert text.count(" ") == 1


SCRIPT = "Grüße, 世界! 👩‍👩‍👧 ❤️ naïve 🏳️‍🌈."


@pytest.fixture(scope="module")
def unicode_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from support.sim import sim_arguments

    config = {"sim": {"text": "script", "script": SCRIPT}}
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("unicode"), config)) as process:
        yield process


def test_p2_characters_are_never_cut(unicode_server: ServerProcess) -> None:
    # The byte tokenizer makes every character of several bytes several tokens.
    with httpx.Client(base_url=unicode_server.base_url) as client:
        assert text_of(ok(client.post(CHAT, json=chat()))) == SCRIPT
        chunks = stream_text(client, CHAT, chat())
        assert joined(chunks) == SCRIPT
        assert all("\ufffd" not in json.dumps(chunk, ensure_ascii=False) for chunk in chunks)
        for most in range(1, 24):
            body = ok(client.post(CHAT, json=chat(max_tokens=most)))
            assert SCRIPT.startswith(text_of(body)), most
            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == most
            assert joined(stream_text(client, CHAT, chat(max_tokens=most))) == text_of(body)


def test_p2_logprobs_carry_the_bytes(unicode_server: ServerProcess) -> None:
    with httpx.Client(base_url=unicode_server.base_url) as client:
        body = ok(client.post(CHAT, json=chat(logprobs=True, top_logprobs=2)))
        content = body["choices"][0]["logprobs"]["content"]
        assert bytes(byte for token in content for byte in token["bytes"]).decode() == SCRIPT
        assert all(len(token["top_logprobs"]) == 2 for token in content)


# --- P3 to P8: constraints -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_p3_whitespace_is_bounded(http: httpx.Client, seed: int) -> None:
    body = chat(seed=seed, response_format=json_schema_format(SCHEMA))
    text = text_of(ok(http.post(CHAT, json=body)))
    assert not re.search(r"\s{20}", re.sub(r'"(\\.|[^"\\])*"', '""', text))
    jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "object", "properties": {"a": {"not": {"multipleOf": 7}}}}, "properties.a"),
        ({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}, "properties.a"),
        ({"type": "stsring"}, ""),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)y"}}}, "properties.a"),
        ({"$ref": "https://example.com/schema.json"}, ""),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_p4_unsupported_schemas_are_refused_with_a_path(
    http: httpx.Client, schema: Any, path: str, stream: bool
) -> None:
    response_format = json_schema_format(schema)
    response_format["json_schema"]["residual"] = "refuse"
    error = error_of(http.post(CHAT, json=chat(response_format=response_format, stream=stream)))
    assert error["param"].startswith("response_format.json_schema.schema")
    assert path in error["param"]
    assert error["type"] == "invalid_request_error"


ALIASES: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "regex", "regex": "[ab]{3}"}}, "[ab]{3}"),
    ({"response_format": {"type": "choice", "choice": ["yes", "no"]}}, "yes|no"),
    ({"response_format": {"type": "lark_grammar", "lark_grammar": 'start: "x" /[0-9]/ "y"'}}, "x[0-9]y"),
    (
        {
            "response_format": {
                "type": "llguidance",
                "grammar": {"grammars": [{"lark_grammar": 'start: "lo" /[0-9]{2}/'}]},
            }
        },
        "lo[0-9]{2}",
    ),
    ({"guided_regex": "[ab]{3}"}, "[ab]{3}"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"guided_grammar": 'start: "x" /[0-9]/'}, "x[0-9]"),
    ({"guided_json": {"enum": [1, 2]}}, "[12]"),
    ({"guided_json": '{"enum": [1, 2]}'}, "[12]"),
    ({"structured_outputs": {"regex": "[ab]{3}"}}, "[ab]{3}"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    ({"structured_outputs": {"grammar": 'start: "x" /[0-9]/'}}, "x[0-9]"),
    ({"structured_outputs": {"json": {"const": "z"}}}, '"z"'),
    ({"grammar": 'start: "x" /[0-9]/'}, "x[0-9]"),
    ({"regex": "[ab]{3}"}, "[ab]{3}"),
    ({"json_schema": {"const": 5}}, "5"),
]


@pytest.mark.parametrize(("fields", "pattern"), ALIASES)
def test_p5_every_alias_is_enforced_on_both_routes(
    http: httpx.Client, fields: dict[str, Any], pattern: str
) -> None:
    answer = ok(http.post(CHAT, json=chat(**fields)))
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert re.fullmatch(pattern, text_of(answer)), text_of(answer)
    completion = ok(http.post(COMPLETIONS, json={"prompt": "Go", "max_tokens": 50, **fields}))
    assert re.fullmatch(pattern, completion["choices"][0]["text"])


@pytest.mark.parametrize("strict", [True, False, None])
@pytest.mark.parametrize("stream", [False, True])
def test_p5_the_schema_is_enforced_whatever_strict_says(
    http: httpx.Client, strict: bool | None, stream: bool
) -> None:
    body = chat(response_format=json_schema_format(SCHEMA, strict=strict))
    text = joined(stream_text(http, CHAT, body)) if stream else text_of(ok(http.post(CHAT, json=body)))
    jsonschema.validate(json.loads(text), SCHEMA)
    assert list(json.loads(text)) == ["name", "age", "tags"]


def test_p5_json_object(http: httpx.Client) -> None:
    text = text_of(ok(http.post(CHAT, json=chat(response_format={"type": "json_object"}))))
    assert isinstance(json.loads(text), dict)


def test_p6_unknown_harmless_fields_are_ignored(http: httpx.Client) -> None:
    fields = {"verbosity": "low", "safety_identifier": "x", "service_tier": "auto", "priority": 1, "new": {}}
    assert text_of(ok(http.post(CHAT, json=chat(**fields)))) == text_of(ok(http.post(CHAT, json=chat())))


BAD_GRAMMARS = [
    {"guided_regex": "((("},
    {"guided_regex": r"(a)\1"},
    {"guided_regex": "(?=a)"},
    {"guided_grammar": "start: ((("},
    {"guided_grammar": 'root ::= "a'},
    {"guided_json": {"type": "object", "properties": []}},
    {"guided_json": {"pattern": "{{x}}", "type": "string"}},
    {"response_format": {"type": "llguidance", "grammar": "not json"}},
    {"response_format": {"type": "llguidance", "grammar": {"grammars": [{"lark_grammar": "("}]}}},
]


@pytest.mark.parametrize("fields", BAD_GRAMMARS)
def test_p7_a_bad_grammar_fails_its_own_request_only(http: httpx.Client, fields: dict[str, Any]) -> None:
    before = text_of(ok(http.post(CHAT, json=chat())))
    for stream in (False, True):
        error = error_of(http.post(CHAT, json=chat(**fields, stream=stream)))
        assert error["param"].startswith(next(iter(fields)))
    assert text_of(ok(http.post(CHAT, json=chat()))) == before


def test_p8_deep_and_large_schemas_are_refused_quickly(http: httpx.Client) -> None:
    deep: Any = {"type": "string"}
    for _ in range(150):
        deep = {"items": deep}
    chain = {f"d{index}": {"$ref": f"#/$defs/d{index + 1}"} for index in range(3000)}
    chain["d3000"] = {"type": "string"}
    many = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(6000)}}
    for schema in (deep, {"$defs": chain, "$ref": "#/$defs/d0"}, many, {"enum": list(range(100_000))}):
        error = error_of(http.post(CHAT, json=chat(guided_json=schema)))
        assert error["param"].startswith("guided_json")


# --- P17 to P19: streams ---------------------------------------------------------------------


def test_p17_usage_comes_only_when_asked_for(http: httpx.Client) -> None:
    for path, body in ((CHAT, chat(n=2)), (COMPLETIONS, {"prompt": "Go", "seed": 1})):
        for chunk in stream_text(http, path, body):
            assert "usage" not in chunk or chunk["usage"] is None
            assert chunk["choices"]
        chunks = stream_text(http, path, {**body, "stream_options": {"include_usage": True}})
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] > 0
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
        whole = ok(http.post(path, json=body))
        assert chunks[-1]["usage"] == whole["usage"]


def test_p17_the_role_comes_once(http: httpx.Client) -> None:
    chunks = stream_text(http, CHAT, chat(n=2))
    roles = [choice for chunk in chunks for choice in chunk["choices"] if "role" in choice["delta"]]
    assert sorted(choice["index"] for choice in roles) == [0, 1]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v1", "GET", 404),
        ("/v1/chat/completions/", "POST", 404),
        ("/v1/models/no-such-model", "GET", 404),
        (CHAT, "GET", 405),
        (CHAT, "PUT", 405),
        ("/v1/models", "POST", 405),
        ("/metrics", "POST", 405),
    ],
)
def test_p18_errors_have_one_form(http: httpx.Client, path: str, method: str, status: int) -> None:
    response = http.request(method, path)
    error_of(response, status)
    assert response.headers["x-request-id"]


def test_p18_sizes_and_types(http: httpx.Client) -> None:
    error_of(http.post(CHAT, content=b" " * 1_000_001, headers={"content-type": "application/json"}), 413)

    def pieces() -> Any:
        for _ in range(20):
            yield b" " * 100_000

    error_of(http.post(CHAT, content=pieces(), headers={"content-type": "application/json"}), 413)
    error_of(http.post(CHAT, content=b"x", headers={"content-type": "text/csv"}), 415)
    error_of(http.post(CHAT, content=b"x", headers={"content-encoding": "gzip"}), 415)
    assert ok(http.post(CHAT, json=chat()))


def test_p18_an_unknown_model_is_404(http: httpx.Client) -> None:
    error = error_of(http.post(CHAT, json=chat(model="gpt-99")), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    error_of(http.post(CHAT, json=chat(model="../../etc/passwd")), 404)
    body = chat()
    del body["model"]
    assert ok(http.post(CHAT, json=body))["model"] == "sim-model"


def test_p19_errors_before_the_first_token_are_a_status(http: httpx.Client) -> None:
    for fields in ({"guided_regex": "((("}, {"max_tokens": 100_000}):
        response = http.post(CHAT, json=chat(stream=True, **fields))
        error_of(response)
        assert response.headers["content-type"] == "application/json"


# --- P23 to P29 ------------------------------------------------------------------------------


def test_p23_idle_streams_are_pinged(slow_server: ServerProcess) -> None:
    # The prefill of this prompt takes about a second, the ping interval is 0.1 s.
    response = httpx.post(
        slow_server.base_url + CHAT, json=chat("word " * 160, max_tokens=1, stream=True), timeout=60
    )
    assert response.text.startswith(": ping\n\n")
    assert len(chunks_of(response.text)) == 1


def test_p24_preflight(http: httpx.Client) -> None:
    headers = {"origin": "https://page.example", "access-control-request-method": "POST"}
    assert http.options(CHAT, headers=headers).status_code == 200


@pytest.mark.parametrize("prefix", ["", "{{ bos_token }}"])
def test_p25_there_is_one_bos_token(start_server: StartServer, tmp_path: Path, prefix: str) -> None:
    template = tmp_path / "template.j2"
    template.write_text(prefix + "{{ messages[0].content }}")
    server = start_server("--chat-template", str(template))
    body = ok(httpx.post(server.base_url + CHAT, json=chat("abc", max_tokens=1)))
    # Three bytes and the token before them, whether the template or the tokenizer puts it there.
    assert body["usage"]["prompt_tokens"] == 4
    completion = ok(httpx.post(server.base_url + COMPLETIONS, json={"prompt": "abc", "max_tokens": 1}))
    assert completion["usage"]["prompt_tokens"] == 4


def test_control_token_names_in_messages_stay_text(http: httpx.Client) -> None:
    plain = ok(http.post(CHAT, json=chat("x", max_tokens=1)))["usage"]["prompt_tokens"]
    marked = ok(http.post(CHAT, json=chat("x<|im_end|>", max_tokens=1)))["usage"]["prompt_tokens"]
    # The byte tokenizer has a token for each byte: text that looks like a control token is 10 of them.
    assert marked - plain == len("<|im_end|>")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be brief."},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "Ann"},
    ],
)
def test_p26_history_in_every_form(http: httpx.Client, message: dict[str, Any]) -> None:
    body = chat(max_tokens=2)
    body["messages"] = [message, *body["messages"]]
    ok(http.post(CHAT, json=body))


@pytest.mark.parametrize(
    "fields", [{}, {"guided_regex": "[0-9]{9}"}, {"logit_bias": {"97": -100, "98": 100}}]
)
def test_p27_logprobs_are_valid_json(http: httpx.Client, fields: dict[str, Any]) -> None:
    def no_constant(name: str) -> None:
        raise AssertionError(name)

    body = chat(logprobs=True, top_logprobs=20, max_tokens=9, temperature=0.0, **fields)
    whole = json.loads(http.post(CHAT, json=body).text, parse_constant=no_constant)
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == whole["usage"]["completion_tokens"]
    for token in content:
        for one in (token, *token["top_logprobs"]):
            assert -9999.0 <= one["logprob"] <= 0.0
            assert math.isfinite(one["logprob"])
    chunks = stream_text(http, CHAT, body)
    pieces = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert [token for piece in pieces for token in piece["content"]] == content


def test_p27_logprobs_of_completions(http: httpx.Client) -> None:
    body = {"prompt": "Go", "logprobs": 3, "max_tokens": 5, "seed": 1}
    logprobs = ok(http.post(COMPLETIONS, json=body))["choices"][0]["logprobs"]
    assert set(logprobs) >= {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["text_offset"]) == 5


def test_p28_default_lengths(http: httpx.Client) -> None:
    endless = {"ignore_eos": True}
    completion = ok(http.post(COMPLETIONS, json={"prompt": "Go", **endless}))
    assert completion["usage"]["completion_tokens"] == 16
    answer = ok(http.post(CHAT, json=chat(**endless)))
    assert answer["usage"]["total_tokens"] == 4096
    assert answer["choices"][0]["finish_reason"] == "length"


def test_p28_max_completion_tokens_wins(http: httpx.Client) -> None:
    for first, second in ((3, 9), (9, 3)):
        body = chat(ignore_eos=True, max_tokens=first, max_completion_tokens=second)
        assert ok(http.post(CHAT, json=body))["usage"]["completion_tokens"] == second


@pytest.mark.parametrize("stream", [False, True])
def test_p28_a_prompt_too_long(http: httpx.Client, stream: bool) -> None:
    for body in (chat("x" * 5000, stream=stream), chat(max_tokens=4096, stream=stream)):
        error = error_of(http.post(CHAT, json=body))
        assert error["code"] == "context_length_exceeded"
    error = error_of(http.post(COMPLETIONS, json={"prompt": [65] * 5000, "stream": stream}))
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_the_overlong_request_is_refused_in_openais_words(http: httpx.Client, stream: bool) -> None:
    error = error_of(http.post(CHAT, json=chat(max_tokens=4096, stream=stream)))
    assert re.match(
        r"This model's maximum context length is 4096 tokens\. However, you requested \d+ tokens "
        r"\(\d+ in the messages, 4096 in the completion\)\.",
        error["message"],
    ), error["message"]
    error = error_of(http.post(COMPLETIONS, json={"prompt": [65] * 5000, "stream": stream}))
    assert error["message"].startswith("This model's maximum context length is 4096 tokens. However, you")


def test_the_end_of_the_context_needs_no_room_for_the_default(http: httpx.Client) -> None:
    # 16 tokens are the default, but nobody asked for them.
    body = ok(http.post(COMPLETIONS, json={"prompt": [65] * 4090, "ignore_eos": True}))
    assert body["usage"]["total_tokens"] == 4096


def test_defaults_and_wishes_are_clamped_to_what_fits(start_server: StartServer) -> None:
    server = start_server(
        runtime={"max_seq_len": 200},
        server={"default_max_tokens": 1000, "max_tokens_beyond_context": "clamp"},
    )
    with httpx.Client(base_url=server.base_url) as client:
        for fields in ({}, {"max_tokens": 5000}, {"max_tokens": -1}, {"max_completion_tokens": 5000.0}):
            answer = ok(client.post(CHAT, json=chat(ignore_eos=True, **fields)))
            assert answer["usage"]["total_tokens"] == 200, fields
        assert error_of(client.post(CHAT, json=chat("x" * 300)))["code"] == "context_length_exceeded"


def test_the_prompt_alone_can_be_scored(http: httpx.Client) -> None:
    body = {"prompt": "Go", "echo": True, "logprobs": 1, "max_tokens": 0}
    answer = ok(http.post(COMPLETIONS, json=body))
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("Go", "length")
    assert choice["logprobs"]["tokens"][1:] == ["G", "o"]
    assert answer["usage"]["completion_tokens"] == 0
    assert joined(stream_text(http, COMPLETIONS, body)) == "Go"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_stopped_an_answer_is_in_it(http: httpx.Client, path: str) -> None:
    def choice(**fields: Any) -> dict[str, Any]:
        body = chat(**fields) if path == CHAT else {"prompt": "Go", "seed": 7, "max_tokens": 99, **fields}
        answer: dict[str, Any] = ok(http.post(path, json=body))["choices"][0]
        return answer

    assert choice(stop=["never there", " "])["stop_reason"] == " "
    assert choice(stop_token_ids=[32])["stop_reason"] == 32
    assert choice(guided_choice=["yes"])["stop_reason"] is None


def test_messages_about_schemas_name_the_place(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "stsring"}}}
    error = error_of(http.post(CHAT, json=chat(guided_json=schema)))
    assert error["param"].startswith("guided_json.properties.a")
    assert error["message"].startswith(error["param"] + ": ")


def test_a_grammar_of_llamacpp_is_enforced(http: httpx.Client) -> None:
    gbnf = 'root ::= "(" root ")" | digit\ndigit ::= [0-9]'
    for fields in ({"grammar": gbnf}, {"ebnf": gbnf}, {"response_format": {"type": "ebnf", "ebnf": gbnf}}):
        text = text_of(ok(http.post(CHAT, json=chat(max_tokens=400, **fields))))
        assert re.fullmatch(r"\(*[0-9]\)*", text), text
        assert text.count("(") == text.count(")")


def test_the_whitespace_of_json_can_be_forbidden(http: httpx.Client) -> None:
    outputs = {"json": SCHEMA, "regex": None, "disable_any_whitespace": True}
    for seed in range(5):
        text = text_of(ok(http.post(CHAT, json=chat(seed=seed, structured_outputs=outputs))))
        assert not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', '""', text)), text


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


# --- one answer, two forms -------------------------------------------------------------------

FORMS: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"stop": ["a", "xyz"]},
    {"max_tokens": 7},
    {"response_format": json_schema_format(SCHEMA)},
    {"guided_regex": "([ab]c){2,9}", "n": 2},
    {"logit_bias": {"101": -100}, "frequency_penalty": 1.5, "repetition_penalty": 1.2},
    {"temperature": 0.0},
    {"top_k": 3, "min_p": 0.1, "top_p": 0.9},
    {"min_tokens": 40, "max_tokens": 60},
    {"stop_token_ids": [32]},
    {"top_p": 0, "top_k": -1},
]


@pytest.mark.parametrize("fields", FORMS)
def test_stream_equals_non_stream(http: httpx.Client, fields: dict[str, Any]) -> None:
    whole = ok(http.post(CHAT, json=chat(**fields)))
    chunks = stream_text(http, CHAT, chat(**fields))
    reasons = finish_reasons(chunks)
    for choice in whole["choices"]:
        assert joined(chunks, choice["index"]) == choice["message"]["content"]
        assert reasons[choice["index"]] == choice["finish_reason"]
    body = {"prompt": ["Go", "Stop"], "seed": 3, "max_tokens": 60, **fields}
    whole = ok(http.post(COMPLETIONS, json=body))
    chunks = stream_text(http, COMPLETIONS, body)
    assert len(whole["choices"]) == 2 * fields.get("n", 1)
    for choice in whole["choices"]:
        assert joined(chunks, choice["index"]) == choice["text"]


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


def test_echo_with_logprobs_covers_the_prompt(http: httpx.Client) -> None:
    body = {"prompt": "Go", "echo": True, "logprobs": 1, "max_tokens": 3, "seed": 1}
    choice = ok(http.post(COMPLETIONS, json=body))["choices"][0]
    logprobs = choice["logprobs"]
    assert choice["text"].startswith("Go")
    assert logprobs["tokens"][1:3] == ["G", "o"]
    # Nothing comes before the first token, so it has no probability.
    assert logprobs["token_logprobs"][0] is None
    assert len(logprobs["tokens"]) == 3 + 3
    assert "".join(logprobs["tokens"][1:]) == choice["text"]
    streamed = stream_text(http, COMPLETIONS, body)
    assert joined(streamed) == choice["text"]
    pieces = [one["logprobs"] for chunk in streamed for one in chunk["choices"]]
    assert [token for piece in pieces for token in piece["tokens"]] == logprobs["tokens"]


def test_the_expanded_prompt_is_returned_when_asked_for(http: httpx.Client) -> None:
    expected = "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    body = chat("Hi <|im_end|>", return_expanded_prompt=True)
    assert ok(http.post(CHAT, json=body))["expanded_prompt"] == expected
    chunks = stream_text(http, CHAT, body)
    assert chunks[0]["expanded_prompt"] == expected
    assert all("expanded_prompt" not in chunk for chunk in chunks[1:])
    assert "expanded_prompt" not in ok(http.post(CHAT, json=chat()))
    body = {"prompt": ["a", "b"], "return_expanded_prompt": True}
    assert ok(http.post(COMPLETIONS, json=body))["expanded_prompt"] == ["a", "b"]


def test_the_schema_is_shown_to_the_model_when_asked_for(http: httpx.Client) -> None:
    body = chat(
        response_format=json_schema_format(SCHEMA),
        return_expanded_prompt=True,
        include_json_schema_in_prompt=True,
    )
    assert '"maxLength": 8' in ok(http.post(CHAT, json=body))["expanded_prompt"]
    del body["include_json_schema_in_prompt"]
    assert "maxLength" not in ok(http.post(CHAT, json=body))["expanded_prompt"]


def test_the_model_probe_generates(http: httpx.Client) -> None:
    assert ok(http.get("/v1/health/model"))["usage"]["completion_tokens"] == 1


def test_a_root_path_is_added_by_a_proxy(start_server: StartServer) -> None:
    # The proxy strips the prefix, so the server is asked without it.
    server = start_server("--api-key", "k", server={"root_path": "/llm"})
    assert server.get("/v1/health/live").status_code == 200
    assert server.get("/v1/models").status_code == 401
    response = httpx.get(server.base_url + "/v1/models", headers={"authorization": "Bearer k"})
    assert response.status_code == 200


NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object", "response_schema": NUMBER}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": json.dumps(NUMBER)},
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": json.dumps({"name": "x", "strict": True, "schema": NUMBER}),
            }
        },
        {"response_format": {"type": "json_schema", "json_schema": json.dumps(NUMBER)}},
        {
            "structured_outputs": {
                "json": NUMBER,
                "regex": None,
                "structural_tag": None,
                "disable_fallback": False,
                "disable_any_whitespace": False,
                "disable_additional_properties": False,
                "_backend": None,
            }
        },
    ],
)
def test_forms_of_other_servers(http: httpx.Client, fields: dict[str, Any]) -> None:
    answer = json.loads(text_of(ok(http.post(CHAT, json=chat(**fields)))))
    assert set(answer) == {"a"}
    assert isinstance(answer["a"], int)


def test_objects_are_closed_when_asked_for(start_server: StartServer) -> None:
    server = start_server(llguidance={"standard": True})
    outputs = {"json": NUMBER, "disable_additional_properties": True}
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        for seed in range(5):
            body = {**chat(structured_outputs=outputs), "seed": seed}
            assert set(json.loads(text_of(ok(http.post(CHAT, json=body))))) == {"a"}


def test_a_mark_of_the_byte_order_is_no_error(http: httpx.Client) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(chat(max_tokens=2)).encode()
    ok(http.post(CHAT, content=body, headers={"content-type": "application/json"}))


def test_stream_options_say_nothing_without_a_stream(http: httpx.Client) -> None:
    body = ok(http.post(CHAT, json=chat(max_tokens=2, stream_options={"include_usage": True})))
    assert body["usage"]["completion_tokens"] == 2


def test_twenty_log_probabilities(http: httpx.Client) -> None:
    body = {"prompt": "Once", "max_tokens": 2, "logprobs": 20, "seed": 1}
    (choice,) = ok(http.post(COMPLETIONS, json=body))["choices"]
    assert [len(one) >= 20 for one in choice["logprobs"]["top_logprobs"]] == [True, True]


def test_an_empty_prompt_is_the_token_that_begins_a_text(http: httpx.Client) -> None:
    body = ok(http.post(COMPLETIONS, json={"prompt": "", "max_tokens": 2}))
    assert body["usage"]["prompt_tokens"] == 1


def test_routes_without_the_prefix(http: httpx.Client) -> None:
    assert ok(http.post("/chat/completions", json=chat(max_tokens=2)))["choices"]
    assert ok(http.post("/completions", json={"prompt": "Once", "max_tokens": 2}))["choices"]
    assert ok(http.get("/models"))["data"][0]["id"] == "sim-model"
    assert set(ok(http.get("/version"))) == {"version"}
    assert ok(http.get("/ping")) == {"status": "ready"}


@pytest.mark.parametrize("stream", [True, False])
def test_http_1_0_knows_no_chunks(server: ServerProcess, stream: bool) -> None:
    body = json.dumps(chat(max_tokens=4, stream=stream)).encode()
    head = f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode() + body)
        # The server closes: that is the end of the body.
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    fields, _, text = answer.partition(b"\r\n\r\n")
    assert fields.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" not in fields.lower()
    if stream:
        assert joined(chunks_of(text.decode()))
    else:
        assert json.loads(text)["choices"]
