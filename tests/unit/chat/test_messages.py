"""Messages of the OpenAI API in their plain form."""

from typing import Any

import pytest

from llgtrt.chat import ChatError
from llgtrt.chat.messages import plain_messages


def test_contents_become_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = plain_messages(
        [
            {"role": "system", "content": "s", "name": "n", "x": 1},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "assistant", "content": None},
            {"role": "user", "content": []},
        ]
    )
    assert messages == [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "no"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
    ]


def test_tool_history() -> None:
    def call(arguments: Any) -> dict[str, Any]:
        return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}

    messages = plain_messages(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call('{"a": [1]}'), call(""), call({"b": 2})],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ]
    )
    assert messages == [
        {"role": "assistant", "content": None, "tool_calls": [call({"a": [1]}), call({}), call({"b": 2})]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def called(arguments: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (["hello"], "messages[0]"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": "root", "content": "a"}], "messages[0].role"),
        ([{"role": ["user"], "content": "a"}], "messages[0].role"),
        (user(None), "messages[0].content"),
        (user(3), "messages[0].content"),
        (user({"type": "text"}), "messages[0].content"),
        (user(["a"]), "messages[0].content[0]"),
        (user([{"type": "text"}]), "messages[0].content[0].text"),
        (user([{"text": "a"}]), "messages[0].content[0].type"),
        (
            user([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]),
            "messages[0].content[1]",
        ),
        (user([{"type": "input_audio"}]), "messages[0].content[0]"),
        (user([{"type": "file"}]), "messages[0].content[0]"),
        (user("\ud800"), "messages[0].content"),
        ([{"role": "user", "content": "a", "name": 3}], "messages[0].name"),
        ([{"role": "user", "content": "a", "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
        (called("{"), "messages[0].tool_calls[0].function.arguments"),
        (called("[1]"), "messages[0].tool_calls[0].function.arguments"),
        (called('{"a": NaN}'), "messages[0].tool_calls[0].function.arguments"),
        (called("[" * 200_000), "messages[0].tool_calls[0].function.arguments"),
        (called("9" * 5000), "messages[0].tool_calls[0].function.arguments"),
        (called(5), "messages[0].tool_calls[0].function.arguments"),
    ],
)
def test_a_wrong_message_is_named(messages: list[Any], param: str) -> None:
    with pytest.raises(ChatError) as caught:
        plain_messages(messages)
    assert caught.value.param == param
    assert param.removesuffix(".text") in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "arguments", ['{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": NaN}', "[1]", "{", '{"a":' * 10_000]
)
def test_arguments_that_are_no_json_object_are_the_clients_mistake(arguments: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    with pytest.raises(ChatError) as caught:
        plain_messages([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert caught.value.param == "messages[0].tool_calls[0].function.arguments"
