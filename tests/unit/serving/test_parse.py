"""Bodies to request models: every bad input is one error that names its field."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from llgtrt.serving import ChatRequest, CompletionRequest, RequestError, parse_request
from llgtrt.serving.errors import quote
from llgtrt.serving.protocol.completion import prompts_of
from llgtrt.serving.sampling import asked_tokens

MESSAGES = [{"role": "user", "content": "Hello"}]


def chat(**fields: Any) -> ChatRequest:
    return parse_request(ChatRequest, json.dumps({"messages": MESSAGES, **fields}).encode())


def refused(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        chat(**fields)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b'"text"',
        b"{",
        b'{"temperature": NaN}',
        b'{"metadata": {"x": Infinity}}',
        b'{"user": "\\ud800"}',
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b'{"user": "\xff"}',
        b'{"messages":' + b"[" * 100_000,
    ],
)
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(ChatRequest, body)
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 200


BAD_VALUES: list[tuple[str, Any]] = [
    ("n", 0),
    ("n", -1),
    ("n", 1.5),
    ("n", True),
    ("n", "1"),
    ("temperature", -0.1),
    ("temperature", 100.1),
    ("temperature", "nan"),
    ("temperature", True),
    ("top_p", -0.1),
    ("top_p", 1.1),
    ("top_k", -2),
    ("top_k", 1.0),
    ("min_p", 1.1),
    ("presence_penalty", 2.1),
    ("presence_penalty", -2.1),
    ("frequency_penalty", 3),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("max_tokens", -2),
    ("max_tokens", 1.5),
    ("max_tokens", "1"),
    ("n_predict", -2),
    ("max_tokens", 2**63),
    ("max_tokens", 10**40),
    ("max_completion_tokens", -2),
    ("priority", 1.5),
    ("priority", -0.5),
    ("priority", True),
    ("priority", "1"),
    ("priority", 2**40),
    ("repeat_penalty", 0),
    ("min_tokens", -1),
    ("seed", 1.5),
    ("seed", 2**63),
    ("seed", -(2**63) - 1),
    ("seed", "1"),
    ("stop", 1),
    ("stop", ["a"] * 65),
    ("stop", [1]),
    ("stop_token_ids", "1"),
    ("stop_token_ids", ["1"]),
    ("logit_bias", []),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": "2"}),
    ("logit_bias", {"1": True}),
    ("logprobs", 1),
    ("top_logprobs", 21),
    ("top_logprobs", 10**9),
    ("stream", "true"),
    ("stream", 1),
    ("stream_options", []),
    ("messages", []),
    ("messages", {}),
    ("messages", "hello"),
    ("model", 1),
    ("user", []),
    ("metadata", {str(index): 1 for index in range(2000)}),
    ("metadata", "x"),
    ("response_format", "json_object"),
    ("response_format", []),
    ("guided_regex", 1),
    ("guided_choice", "a"),
    ("structured_outputs", "json"),
    ("chat_template_kwargs", []),
]


@pytest.mark.parametrize(("field", "value"), BAD_VALUES)
def test_a_wrong_value_names_its_field(field: str, value: Any) -> None:
    error = refused(**{field: value})
    assert error.param is not None
    assert error.param.split("[")[0].split(".")[0] == field
    assert error.message.startswith(error.param)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"])
def test_numbers_that_are_not_finite_are_refused(field: str, literal: str) -> None:
    with pytest.raises(RequestError):
        parse_request(ChatRequest, f'{{"messages": [{{}}], "{field}": {literal}}}'.encode())


def test_null_means_not_given() -> None:
    fields = {name: None for name in ChatRequest.model_fields if name != "messages"}
    names = {field.alias or name for name, field in ChatRequest.model_fields.items()}
    request = chat(**{name: None for name in names if name != "messages"})
    assert all(getattr(request, name) is None for name in fields)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(CompletionRequest, b"{}")
    assert caught.value.param == "prompt"


def test_nested_paths_are_dotted() -> None:
    assert refused(messages=[{}, "x"]).param == "messages[1]"
    assert refused(response_format={"type": "json_schema", "json_schema": {"name": 1}}).param == (
        "response_format.json_schema.name"
    )
    assert refused(stream_options={"include_usage": 1}).param == "stream_options.include_usage"


def test_several_problems_are_one_error() -> None:
    error = refused(n=0, temperature=300)
    assert "n:" in error.message
    assert "temperature:" in error.message


def test_a_long_value_is_not_echoed() -> None:
    assert len(refused(response_format={"type": "x" * 1_000_000}).message) < 300
    assert len(refused(**{"guided_" + "x" * 100_000: 1}).message) < 400
    assert len(refused(n="9" * 1_000_000).message) < 300
    assert len(quote("x" * 1000)) < 100


def test_a_quoted_value_is_one_line() -> None:
    assert "\n" not in quote("a\r\nb")


def test_p6_unknown_harmless_fields_are_ignored_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "llgtrt.serving")
    for _ in range(3):
        chat(a_field_of_the_future={"x": 1})
    assert sum("a_field_of_the_future" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("field", ["guided_something", "lark_grammar", "choice"])
def test_p5_unknown_constraint_fields_are_refused(field: str) -> None:
    error = refused(**{field: "x"})
    assert error.param == field
    assert error.message.startswith(field)
    assert chat(**{field: None}).messages == MESSAGES


@pytest.mark.parametrize("field", ["prompt_embeds", "custom_logit_processor", "chat_template", "lora_path"])
def test_fields_that_would_change_the_answer_are_refused(field: str) -> None:
    assert refused(**{field: "x"}).param == field


UNSUPPORTED: list[tuple[str, Any, Any]] = [
    ("banned_tokens", [1], []),
    ("custom_token_bans", [1], ""),
    ("lora", [{"id": 0, "scale": 1.0}], []),
    ("stop_regex", "a+", ""),
    ("n_probs", 3, 0),
    ("separate_reasoning", False, True),
    ("reasoning_format", "none", "auto"),
    ("return_hidden_states", True, False),
    ("top_n_sigma", 1.5, -1),
    ("samplers", ["top_k"], []),
    ("detokenize", False, True),
    ("echo", True, False),
    ("mirostat", 2, 0),
]
"""Fields of other servers, a value that asks for something, and one that does not."""


@pytest.mark.parametrize(("field", "value", "harmless"), UNSUPPORTED)
def test_what_other_servers_have_and_this_one_not_is_refused(field: str, value: Any, harmless: Any) -> None:
    error = refused(**{field: value})
    assert error.param == field
    assert error.message.startswith(field)
    assert chat(**{field: harmless}).messages == MESSAGES


def test_prompts_of_token_ids_belong_to_the_prompt() -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(CompletionRequest, b'{"prompt": "a", "prompt_token_ids": [1]}')
    assert caught.value.param == "prompt_token_ids"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_counts_of_tokens_may_be_written_as_floats_and_unlimited(field: str) -> None:
    assert getattr(chat(**{field: 100.0}), field) == 100
    assert getattr(chat(**{field: -1}), field) == -1
    assert asked_tokens(chat(**{field: 100.0})) == 100


def test_the_lowest_integer_goes_first_and_the_highest_fraction() -> None:
    priorities = [chat(priority=value).priority for value in (-1000, -1, 0, 1, 2, 1000)]
    assert all(priority is not None and 0 <= priority <= 1 for priority in priorities)
    assert priorities == sorted(priorities, key=float, reverse=True)  # type: ignore[arg-type]
    assert len(set(priorities)) == len(priorities)
    assert chat(priority=0).priority == 0.5
    assert chat(priority=0.25).priority == 0.25


def test_user_may_be_a_number() -> None:
    assert chat(user=7).user == 7


def test_an_empty_conversation_is_said_in_words() -> None:
    assert refused(messages=[]).message == "messages: must not be empty."


def test_a_stop_string_has_a_greatest_length() -> None:
    assert chat(stop="x" * 10_000).stop == ["x" * 10_000]
    assert refused(stop=["a", "x" * 10_001]).message == "stop: a string may have at most 10000 characters."


def test_stop_is_always_a_list() -> None:
    assert chat(stop="").stop == []
    assert chat(stop=["a", ""]).stop == ["a"]
    assert chat(stop=["a"] * 20).stop == ["a"] * 20
    assert chat(stop="a").stop == ["a"]
    assert chat(stop=["a", "b"]).stop == ["a", "b"]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_in_every_form(prompt: Any, prompts: Any) -> None:
    assert prompts_of(prompt, 4, 10, 100) == prompts


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        (1, "prompt"),
        ([], "prompt"),
        (["a", 1], "prompt[1]"),
        ([1, "a"], "prompt[1]"),
        ([True], "prompt[0]"),
        ([10], "prompt[0]"),
        ([-1], "prompt[0]"),
        ([[]], "prompt[0]"),
        ([[1], [10]], "prompt[1][0]"),
        ([1.0], "prompt[0]"),
        (["a"] * 100_000, "prompt"),
        ([[1]] * 100_000, "prompt"),
    ],
)
def test_bad_prompts(prompt: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        prompts_of(prompt, 4, 10, 100)
    assert caught.value.param == param


def test_more_tokens_than_the_context_are_not_looked_at() -> None:
    for prompt in ([1] * 101, [[1], ["x"] * 101]):
        with pytest.raises(RequestError) as caught:
            prompts_of(prompt, 4, 10, 100)
        assert caught.value.code == "context_length_exceeded"


def test_the_number_of_fields_is_bounded() -> None:
    with pytest.raises(RequestError):
        chat(**{f"x{index}": 1 for index in range(300)})
