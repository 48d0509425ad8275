"""Whatever a request asks for, its stream says what its whole answer says, and shows nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from support.api import CHAT, COMPLETIONS, chunks_of
from support.server import ServerProcess
from support.sim import sim_arguments

CALLS = (
    {"name": "weather", "arguments": {"city": "Zürich 👋", "days": 2}},
    {"name": "now", "arguments": {"zone": "CET"}},
)
SCRIPT = "Grüße 👋🏽 to <b> and < tool, 日本語.\n" + "\n".join(
    f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in CALLS
)
PARAMETERS: dict[str, Any] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "days": {"type": "integer", "maximum": 9},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "now": {
        "type": "object",
        "properties": {"zone": {"enum": ["UTC", "CET"]}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in PARAMETERS.items()
]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 5}},
    "required": ["a"],
}
FORMATS: list[dict[str, Any]] = [
    {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    {"type": "choice", "choice": ["yes", "né", "👋🏽 no"]},
    {"type": "regex", "regex": "[a-e]{3,9}( ü)?"},
]

requests = st.fixed_dictionaries(
    {"seed": st.integers(0, 10_000), "max_tokens": st.integers(1, 150), "n": st.integers(1, 3)},
    optional={
        "stop": st.lists(st.text("ab etü<{\n", min_size=1, max_size=4), min_size=1, max_size=3),
        "at_limit": st.sampled_from(["close", "cut"]),
        "temperature": st.sampled_from([0, 1]),
        "include_stop_str_in_output": st.booleans(),
        "return_token_ids": st.booleans(),
        "response_format": st.sampled_from(FORMATS),
    },
)
chats = st.tuples(
    requests,
    st.fixed_dictionaries(
        {},
        optional={
            "tools": st.just(TOOLS),
            "tool_choice": st.sampled_from(
                ["auto", "none", "required", {"type": "function", "function": {"name": "now"}}]
            ),
            "parallel_tool_calls": st.booleans(),
            "logprobs": st.booleans(),
            "thinking": st.just({"budget_tokens": 5}),
        },
    ),
).map(lambda both: {**both[0], **both[1], "messages": [{"role": "user", "content": "Hi"}]})
completions = requests.map(lambda fields: {**fields, "prompt": "Hi"})


@pytest.fixture(scope="module", params=["random", "script"])
def http(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A model of random letters, and one that always says the same two calls."""
    text: dict[str, Any] = {"text": "script", "script": SCRIPT} if request.param == "script" else {}
    config = {"runtime": {"max_batch_size": 16}, "sim": text}
    with (
        ServerProcess(*sim_arguments(tmp_path_factory.mktemp("any"), config)) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as client,
    ):
        yield client


def of_whole(body: dict[str, Any]) -> dict[int, Any]:
    """What each choice says: content, thinking, calls, tokens, and why it ended."""
    said = {}
    for choice in body["choices"]:
        message = choice.get("message") or {"content": choice["text"]}
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        said[choice["index"]] = (
            message["content"] or "",
            message.get("reasoning_content") or "",
            [(call["name"], call["arguments"]) for call in calls],
            choice.get("token_ids") or [],
            choice["finish_reason"],
        )
    return said


def of_stream(chunks: list[dict[str, Any]]) -> dict[int, Any]:
    """The same, put together from the chunks."""
    parts: dict[int, Any] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            one = parts.setdefault(
                choice["index"], {"text": "", "thought": "", "calls": [], "ids": [], "end": None}
            )
            assert one["end"] is None, "a chunk after the last"
            delta = choice.get("delta", {"content": choice.get("text")})
            one["text"] += delta.get("content") or ""
            one["thought"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(one["calls"]):
                    one["calls"].append([call["function"]["name"], ""])
                one["calls"][call["index"]][1] += call["function"]["arguments"]
            one["ids"] += choice.get("token_ids") or []
            one["end"] = choice["finish_reason"]
    return {
        index: (one["text"], one["thought"], [tuple(call) for call in one["calls"]], one["ids"], one["end"])
        for index, one in parts.items()
    }


def check_content(asked: dict[str, Any], said: dict[int, Any]) -> None:
    constrained = "response_format" in asked
    for text, thought, calls, _ids, finish in said.values():
        for shown in (text, thought):
            assert "\ufffd" not in shown
            assert "\ufdd0" not in shown
        if asked.get("tools"):
            assert "<tool_call>" not in text
        if not (constrained or asked.get("tools") or asked.get("include_stop_str_in_output")):
            assert not any(stop in text for stop in asked.get("stop") or ())
        for number, (name, arguments) in enumerate(calls):
            if finish == "tool_calls" or number + 1 < len(calls):
                Draft202012Validator(PARAMETERS[name]).validate(json.loads(arguments))
        if constrained and not calls and finish == "stop" and not asked.get("stop"):
            kind = asked["response_format"]
            if kind["type"] == "json_schema":
                Draft202012Validator(SCHEMA).validate(json.loads(text))
            elif kind["type"] == "choice":
                assert text in kind["choice"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_says_what_the_whole_answer_says(http: httpx.Client, path: str) -> None:
    kinds: Counter[str] = Counter()

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(chats if path == CHAT else completions)
    def check(asked: dict[str, Any]) -> None:
        whole = http.post(path, json=asked)
        streamed = http.post(path, json={**asked, "stream": True})
        assert streamed.status_code == whole.status_code
        if whole.status_code != 200:
            assert whole.status_code == 400
            assert streamed.json()["error"] == whole.json()["error"]
            kinds["refused"] += 1
            return
        said = of_whole(whole.json())
        assert of_stream(chunks_of(streamed.text)) == said
        check_content(asked, said)
        kinds["answered"] += 1
        kinds["called"] += any(calls for _text, _thought, calls, _ids, _finish in said.values())

    check()
    assert kinds["answered"] >= 40, kinds
    assert kinds["called"] or path == COMPLETIONS
