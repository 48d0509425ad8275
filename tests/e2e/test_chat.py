"""Chat and completions through the stock client, with the real model."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from support.server import ServerProcess, wait_until

QUESTION: list[Any] = [{"role": "user", "content": "Write one sentence about the sea."}]


def test_chat(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=24, temperature=0
    )
    assert completion.object == "chat.completion"
    assert completion.id.startswith("chatcmpl-")
    assert completion.model == "smollm2"
    choice = completion.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = completion.usage
    assert usage is not None
    assert 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_chat_stream(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="smollm2",
            messages=QUESTION,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    *deltas, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in deltas)
    assert deltas[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in deltas[1:])
    finish = [chunk.choices[0].finish_reason for chunk in deltas]
    assert finish[-1] in ("stop", "length")
    assert set(finish[:-1]) <= {None}


def streamed_text(client: OpenAI, **fields: Any) -> tuple[str, str | None]:
    text, finish = "", None
    for chunk in client.chat.completions.create(model="smollm2", messages=QUESTION, stream=True, **fields):
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    return text, finish


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 1, "temperature": 1.0, "max_tokens": 48},
        {"seed": 2, "temperature": 0.7, "top_p": 0.9, "max_tokens": 48, "stop": ["the", ". "]},
        {"temperature": 0, "max_tokens": 32},
        {
            "seed": 3,
            "max_tokens": 100,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "sea",
                    "schema": {
                        "type": "object",
                        "properties": {
                            "sentence": {"type": "string", "maxLength": 60},
                            "é🙂": {"type": "boolean"},
                        },
                        "required": ["sentence", "é🙂"],
                        "additionalProperties": False,
                    },
                },
            },
        },
    ],
    ids=["sampled", "stop-strings", "greedy", "schema"],
)
def test_stream_equals_non_stream(client: OpenAI, fields: dict[str, Any]) -> None:
    whole = client.chat.completions.create(model="smollm2", messages=QUESTION, **fields).choices[0]
    assert streamed_text(client, **fields) == (whole.message.content, whole.finish_reason)


def test_the_seed_decides_the_answer(client: OpenAI) -> None:
    fields: dict[str, Any] = {"max_tokens": 32, "temperature": 1.0}
    first, again, other = (streamed_text(client, seed=seed, **fields) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_choices_differ_and_follow_seed_plus_index(client: OpenAI) -> None:
    fields: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "max_tokens": 24, "temperature": 1.0}
    three = client.chat.completions.create(n=3, seed=20, **fields)
    texts = [choice.message.content for choice in sorted(three.choices, key=lambda choice: choice.index)]
    assert len(set(texts)) == 3
    second = client.chat.completions.create(seed=21, **fields)
    assert second.choices[0].message.content == texts[1]


def test_stop_string_is_left_out(client: OpenAI) -> None:
    fields: dict[str, Any] = {"max_tokens": 40, "temperature": 0}
    free, _ = streamed_text(client, **fields)
    word = free.split()[3]
    cut, finish = streamed_text(client, stop=[word], **fields)
    assert finish == "stop"
    assert cut == free[: free.index(word)]


def test_max_tokens_is_exact(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=17, extra_body={"ignore_eos": True}
    )
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 17


def test_completion_texts_tokens_and_echo(client: OpenAI) -> None:
    texts = client.completions.create(
        model="smollm2", prompt=["One, two,", "A, B,"], max_tokens=8, temperature=0
    )
    assert [choice.index for choice in texts.choices] == [0, 1]
    assert texts.object == "text_completion"
    echoed = client.completions.create(
        model="smollm2", prompt="One, two,", max_tokens=8, temperature=0, echo=True
    )
    assert echoed.choices[0].text == "One, two," + texts.choices[0].text
    ids = client.completions.create(model="smollm2", prompt=[4, 5, 6], max_tokens=4)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3


def test_logprobs(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=12, temperature=0, logprobs=True, top_logprobs=3
    )
    choice = completion.choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content
    assert content is not None
    assert completion.usage is not None
    assert len(content) == completion.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        # Greedy: the chosen token is the most likely one.
        assert token.top_logprobs[0].logprob == token.logprob
    text = b"".join(bytes(token.bytes or []) for token in content).decode()
    assert text.startswith(choice.message.content or "?")


CONSTRAINTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "regex",
        {"type": "regex", "regex": "[A-Z][a-z]{2,9} is (large|small)\\."},
        "[A-Z][a-z]{2,9} is (large|small)\\.",
    ),
    ("choice", {"type": "choice", "choice": ["yes", "no", "perhaps"]}, "yes|no|perhaps"),
    (
        "lark",
        {
            "type": "lark_grammar",
            "lark_grammar": 'start: item (", " item){2}\nitem: /[a-z]{3,8}/ "=" /[0-9]{1,3}/\n',
        },
        "[a-z]{3,8}=[0-9]{1,3}(, [a-z]{3,8}=[0-9]{1,3}){2}",
    ),
    (
        "llguidance",
        {"type": "llguidance", "grammar": {"grammars": [{"lark_grammar": "start: /[01]{8}/"}]}},
        "[01]{8}",
    ),
]


@pytest.mark.parametrize(
    ("response_format", "pattern"), [c[1:] for c in CONSTRAINTS], ids=[c[0] for c in CONSTRAINTS]
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_constraint(client: OpenAI, response_format: dict[str, Any], pattern: str, stream: bool) -> None:
    fields: dict[str, Any] = {"seed": 9, "max_tokens": 64, "extra_body": {"response_format": response_format}}
    if stream:
        text, finish = streamed_text(client, **fields)
    else:
        choice = client.chat.completions.create(model="smollm2", messages=QUESTION, **fields).choices[0]
        text, finish = choice.message.content or "", choice.finish_reason
    assert finish == "stop"
    assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        ({"guided_regex": "[0-9]{4}"}, "[0-9]{4}"),
        ({"guided_choice": ["left", "right"]}, "left|right"),
        ({"guided_grammar": "start: /a{3}b?/"}, "a{3}b?"),
        ({"guided_json": {"type": "integer", "minimum": 1, "maximum": 3}}, "[123]"),
        ({"structured_outputs": {"choice": ["up", "down"]}}, "up|down"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_constraint_alias(client: OpenAI, body: dict[str, Any], pattern: str) -> None:
    completion = client.chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=32, extra_body=body
    )
    assert re.fullmatch(pattern, completion.choices[0].message.content or "")


def test_json_object(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="smollm2", messages=QUESTION, max_tokens=200, seed=4, response_format={"type": "json_object"}
    )
    choice = completion.choices[0]
    assert (choice.message.content or "").startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or ""), dict)


def test_forced_tokens_are_counted(client: OpenAI, server: ServerProcess) -> None:
    before = server.metrics()
    client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        max_tokens=64,
        extra_body={
            "guided_json": {"const": {"a_long_constant_key": "and a constant value that nothing can change"}}
        },
    )
    after = server.metrics()
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["llgtrt_forced_tokens_total"] > 0
    assert (
        grown["llgtrt_forced_tokens_total"] + grown["llgtrt_sampled_tokens_total"]
        == grown["llgtrt_generation_tokens_total"]
    )


def test_concurrent_requests(client: OpenAI) -> None:
    def answer(seed: int) -> tuple[str, str | None]:
        fields: dict[str, Any] = {"seed": seed, "max_tokens": 60, "temperature": 1.0}
        if seed % 2:
            fields["extra_body"] = {"guided_regex": "[a-z ]{20,40}"}
        return streamed_text(client, **fields)

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(answer, range(12)))
    assert len(set(answers)) == 12
    for text, finish in answers[1::2]:
        assert finish == "stop"
        assert re.fullmatch("[a-z ]{20,40}", text)


def test_disconnect_frees_the_slot(server: ServerProcess) -> None:
    body = {"messages": QUESTION, "stream": True, "max_tokens": 1500, "ignore_eos": True}
    with httpx.stream("POST", f"{server.base_url}/v1/chat/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        lines = response.iter_lines()  # kept: dropping the iterator closes the connection
        next(lines)
        wait_until(lambda: not server.is_idle(), "the request runs")
    wait_until(server.is_idle, "the slot of the closed connection is free", 10)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": 900}, 400, "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"extra_body": {"guided_regex": "((("}}, 400, "guided_regex"),
        ({"extra_body": {"guided_json": {"type": "strin"}}}, 400, "guided_json"),
    ],
    ids=["temperature", "max_tokens", "regex", "schema"],
)
def test_bad_request_names_the_field(client: OpenAI, fields: dict[str, Any], code: int, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smollm2", messages=QUESTION, **fields)
    assert caught.value.status_code == code
    assert caught.value.param is not None
    assert caught.value.param.startswith(param)


def test_a_prompt_too_long_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="smollm2", prompt=[5] * 100_000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["smollm2"]
