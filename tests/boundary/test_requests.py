"""Requests through the native module: output forms, errors, places in the queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from llgtrt import _native
from llgtrt.engine.request import generate_request
from support.core import Core, native_request
from support.server import wait_until

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
        "additionalProperties": False,
    }
)


def text_of(deltas: list[_native.Delta], index: int = 0) -> str:
    return "".join(choice.text for delta in deltas for choice in delta.choices if choice.index == index)


def test_final_output_is_one_delta(core: Core) -> None:
    (delta,) = core.finish(core.submit(output="final", max_tokens=20, seed=1, ignore_eos=True))
    assert delta.error is None
    (choice,) = delta.choices
    assert choice.token_count == 20
    assert choice.finish_reason == "length"
    assert delta.usage is not None
    assert delta.usage.completion_tokens == 20
    assert delta.usage.prompt_tokens > 0


def test_deltas_add_up_to_the_final_text(core: Core) -> None:
    fields: dict[str, Any] = {"max_tokens": 50, "seed": 3, "ignore_eos": True}
    deltas = core.finish(core.submit(output="deltas", **fields))
    (final,) = core.finish(core.submit(output="final", **fields))
    assert text_of(deltas) == final.choices[0].text
    assert sum(choice.token_count for delta in deltas for choice in delta.choices) == 50
    assert [delta.usage is None for delta in deltas] == [True] * (len(deltas) - 1) + [False]


def test_sse_carries_the_same_text(core: Core) -> None:
    fields: dict[str, Any] = {"max_tokens": 50, "seed": 3, "ignore_eos": True}
    (final,) = core.finish(core.submit(output="final", **fields))
    handle = core.submit(
        output="chat_sse", response_id="chatcmpl-1", model="m", created=7, include_usage=True, **fields
    )
    stream, last = b"", False
    while not last:
        payload, last = core.next(handle)
        assert isinstance(payload, bytes)
        stream += payload
    events = stream.decode().split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {(chunk["id"], chunk["model"], chunk["created"]) for chunk in chunks} == {("chatcmpl-1", "m", 7)}
    usage = chunks.pop()
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 50
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas) == final.choices[0].text


def test_choices_and_prompts_have_indices(core: Core) -> None:
    (delta,) = core.finish(
        core.submit(prompts=["one", "two"], n=3, output="final", max_tokens=8, seed=5, ignore_eos=True)
    )
    assert sorted(choice.index for choice in delta.choices) == [0, 1, 2, 3, 4, 5]
    assert delta.usage is not None
    assert delta.usage.completion_tokens == 48


def test_an_unread_request_merges_its_output(core: Core) -> None:
    handle = core.submit(max_tokens=200, seed=1, ignore_eos=True)
    wait_until(lambda: "llgtrt_generation_tokens_total 200\n" in core.engine.metrics(), "all is generated")
    payload, last = core.next(handle)
    assert last
    assert isinstance(payload, _native.Delta)
    assert sum(choice.token_count for choice in payload.choices) == 200


@pytest.mark.parametrize(
    ("grammar", "allowed"),
    [
        (_native.GrammarSpec.choice(["yes", "no"]), {"yes", "no"}),
        (_native.GrammarSpec.regex("[ab]"), {"a", "b"}),
        (_native.GrammarSpec.lark('start: "x" | "y"'), {"x", "y"}),
        (_native.GrammarSpec.json_schema('{"enum": [1, 2]}'), {"1", "2"}),
        (_native.GrammarSpec.llguidance('{"grammars": [{"lark_grammar": "start: /[01]/"}]}'), {"0", "1"}),
    ],
    ids=lambda value: value.kind if isinstance(value, _native.GrammarSpec) else "",
)
def test_grammar_kinds(core: Core, grammar: _native.GrammarSpec, allowed: set[str]) -> None:
    (delta,) = core.finish(core.submit(output="final", grammar=grammar, seed=1))
    assert delta.error is None
    assert delta.choices[0].text in allowed
    assert delta.choices[0].finish_reason == "stop"


def test_json_schema_answers_are_valid(core: Core) -> None:
    for seed in range(20):
        grammar = _native.GrammarSpec.json_schema(SCHEMA)
        (delta,) = core.finish(core.submit(output="final", grammar=grammar, seed=seed, max_tokens=200))
        if delta.choices[0].finish_reason == "stop":
            answer = json.loads(delta.choices[0].text)
            assert list(answer) == ["n", "ok"]
            assert 0 <= answer["n"] <= 99


@pytest.mark.parametrize(
    "grammar",
    [
        _native.GrammarSpec.regex("((("),
        _native.GrammarSpec.json_schema('{"type": "stsring"}'),
        _native.GrammarSpec.json_schema("{"),
        _native.GrammarSpec.lark("start: missing"),
        _native.GrammarSpec.llguidance("[]"),
        _native.GrammarSpec.choice([]),
    ],
    ids=["regex", "schema", "json", "lark", "llguidance", "choice"],
)
def test_a_bad_grammar_fails_its_own_request_only(core: Core, grammar: _native.GrammarSpec) -> None:
    neighbour = core.submit(output="final", max_tokens=30, seed=1, ignore_eos=True)
    (bad,) = core.finish(core.submit(grammar=grammar, grammar_param="guided_regex"))
    assert isinstance(bad.error, _native.GrammarError)
    assert bad.error.kind == "grammar"
    assert bad.error.message
    assert (bad.error.param or "").startswith("guided_regex")
    (good,) = core.finish(neighbour)
    assert good.error is None
    assert good.choices[0].token_count == 30


def test_a_prompt_too_long_names_the_context(make_core: Callable[..., Core]) -> None:
    core = make_core(runtime={"max_seq_len": 64})
    (delta,) = core.finish(core.submit(prompts=["a" * 4000], max_tokens=1))
    assert isinstance(delta.error, _native.ContextLengthError)
    assert delta.error.kind == "context_length"


def test_queue_places(make_core: Callable[..., Core]) -> None:
    core = make_core(runtime={"max_batch_size": 2, "max_queue_size": 4})
    permits: list[_native.Permit] = []

    def take_all() -> None:
        while len(permits) < 100:
            permits.append(core.engine.reserve(1))

    with pytest.raises(_native.OverloadedError):
        take_all()
    count = len(permits)
    assert count >= 4
    permits.pop()
    permits.append(core.engine.reserve(1))
    permits.clear()
    assert core.engine.reserve(count).sequences == count


def test_a_long_text_may_come_in_pieces(core: Core) -> None:
    def tokens(prompt: Any) -> list[int] | None:
        request = native_request(prompts=[prompt], output="final", max_tokens=1, return_token_ids=True)
        handle = core.engine.submit(request, core.engine.reserve(1))
        delta = core.next(handle)[0]
        assert isinstance(delta, _native.Delta)
        return delta.choices[0].prompt_token_ids

    text = "<s>né漢😀" * 50
    pieces = [text[start : start + 7].encode() for start in range(0, len(text), 7)]
    assert tokens(pieces) == tokens(text)
    assert generate_request({"max_tokens": 1}, ["é" * 70_000]) is not None
    with pytest.raises(ValueError, match="utf-8"):
        _native.GenerateRequest(b'{"request":{}}', prompts=[[b"a", b"\xff"]])


def test_a_permit_works_once(core: Core) -> None:
    permit = core.engine.reserve(1)
    request = native_request(max_tokens=1)
    core.finish(core.engine.submit(request, permit))
    with pytest.raises(_native.InternalError):
        core.engine.submit(request, permit)


def test_tokenize_and_back(core: Core) -> None:
    text = "héllo 🙂 wörld"
    tokens = core.engine.tokenize(text, add_special=False)
    assert tokens
    assert core.engine.detokenize(tokens) == text
    (delta,) = core.finish(
        core.submit(prompts=[tokens], add_special=False, echo=True, output="final", max_tokens=1)
    )
    assert delta.choices[0].text.startswith(text)


TABLE = ("fp16", [2, 3], bytes(12))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_table": ("fp16", [2, 3], bytes(11))}, "prompt_table"),
        ({"prompt_table": ("fp16", [2, 2**62], bytes(8))}, "prompt_table"),
        ({"prompt_table": ("fp16", [], b"")}, "prompt_table"),
        ({"prompt_table": ("fp16", [6], bytes(12))}, "prompt_table"),
        ({"prompt_table_extra_ids": [1]}, "prompt_table_extra_ids"),
        ({"prompts": ["a", "b"], "prompt_table": TABLE}, "prompt_table"),
        ({"mrope_cos_sin": ("fp32", [1, 2], bytes(8))}, "mrope_cos_sin"),
        ({"mrope_position_deltas": 1}, "mrope_cos_sin"),
        ({"mrope_cos_sin": ("fp16", [2], bytes(4)), "mrope_position_deltas": 1}, "mrope_cos_sin"),
        ({"encoder_features": ("fp32", [2], bytes(4))}, "encoder_features"),
        ({"cross_attention_mask": ("bool", [1, 1, 1, 1, 1], bytes(1))}, "cross_attention_mask"),
        ({"skip_cross_attention": ("i32", [1], bytes(4))}, "skip_cross_attention"),
        ({"retention": [{"start": 5, "end": 5, "priority": 35}]}, "kv_cache_retention"),
        ({"retention": [{"start": 2**31, "priority": 35}]}, "kv_cache_retention"),
        ({"retention": [{"start": 0, "priority": 101}]}, "kv_cache_retention"),
        ({"decode_retention": (101, None)}, "kv_cache_retention"),
        ({"no_repeat_ngram_size": 0}, "no_repeat_ngram_size"),
        ({"no_repeat_ngram_size": 2**31}, "no_repeat_ngram_size"),
        ({"top_p_reset_ids": 2**31}, "top_p_reset_ids"),
        ({"top_p_decay": 0.0}, "top_p_decay"),
        ({"top_p_min": 1.5}, "top_p_min"),
        ({"priority": 1.1}, "priority"),
    ],
)
def test_options_that_cannot_be(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(_native.InvalidRequestError) as caught:
        native_request(**fields)
    assert caught.value.param == param
    assert param in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temprature": 1.0}, "request.temprature"),
        ({"n": "2"}, "request.n"),
        ({"max_tokens": -1}, "request.max_tokens"),
        ({"output": "sse"}, "request.output"),
        ({"stop": ["a", 3]}, "request.stop[1]"),
        ({"temperature": "warm"}, "request.sampling.temperature"),
        ({"temperature": float("nan")}, "request.sampling.temperature"),
        ({"logit_bias": [(1, 2.0), (-1, 2.0)]}, "request.sampling.logit_bias[1][0]"),
        ({"adapter": {"name": "a", "load": "sometimes"}}, "request.options.adapter.load"),
        ({"retention": [{"start": 0, "priority": 1, "end_": 2}]}, "request.options.retention[0].end_"),
        ({"top_p_min": float("inf")}, "request.options.sampling.top_p_min"),
        ({"prompt_table": ("fp64", [1, 1], bytes(8))}, "extras.prompt_table.element"),
        ({"position_ids": [0, -1]}, "extras.position_ids[1]"),
    ],
)
def test_what_the_core_does_not_understand_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(_native.InternalError) as caught:
        native_request(**fields)
    assert caught.value.param == param
    assert f"{param}: " in caught.value.message


def test_seeds_below_zero_are_names_of_others(core: Core) -> None:
    def answer(seed: int) -> str:
        (delta,) = core.finish(core.submit(output="final", seed=seed, max_tokens=30, ignore_eos=True))
        return delta.choices[0].text

    assert answer(-1) == answer(2**63 - 1)
    assert answer(-(2**63)) == answer(0)
    assert answer(-1) != answer(0)


def test_a_tensor_without_its_bytes_is_refused() -> None:
    fields = b'{"request": {}, "extras": {"prompt_table": {"element": "fp16", "shape": [1, 1], "buffer": 1}}}'
    with pytest.raises(_native.InvalidRequestError) as caught:
        _native.GenerateRequest(fields, prompts=["x"], buffers=[bytes(2)])
    assert caught.value.param == "prompt_table"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"adapter": {"name": "a"}}, "lora_model"),
        ({"bad_words": ["no"]}, "bad_words"),
        ({"cache_salt": 0}, "cache_salt"),
        ({"allotted_time_ms": 5}, "allotted_time_ms"),
        ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size"),
        ({"top_p_decay": 0.9}, "top_p_decay"),
        ({"top_p_min": 0.1}, "top_p_min"),
        ({"top_p_reset_ids": 7}, "top_p_reset_ids"),
        ({"retention": [{"start": 0, "end": 5, "priority": 35, "duration_ms": 10}]}, "kv_cache_retention"),
        ({"decode_retention": (35, None)}, "kv_cache_retention"),
        ({"prompt_table": TABLE}, "prompt_table"),
        ({"position_ids": [0]}, "position_ids"),
        ({"mrope_cos_sin": ("fp32", [2], bytes(8)), "mrope_position_deltas": 0}, "mrope_cos_sin"),
        ({"encoder_tokens": [1]}, "encoder"),
        ({"skip_cross_attention": ("bool", [1], bytes(1))}, "encoder"),
    ],
)
def test_options_that_the_engine_lacks_are_refused(core: Core, fields: dict[str, Any], param: str) -> None:
    (delta,) = core.finish(core.submit(**fields))
    assert isinstance(delta.error, _native.InvalidRequestError)
    assert delta.error.param == param
    assert "the sim engine" in delta.error.message


@pytest.mark.parametrize("letter", ["a", "é", "漢", "😀"])
def test_the_text_of_a_grammar_crosses_whole_however_long_it_is(letter: str) -> None:
    text = letter * 200_001 + "."
    assert _native.GrammarSpec.regex(text).source == text
    assert json.loads(_native.GrammarSpec.choice(["x", text]).source) == ["x", text]


def test_half_of_a_pair_is_refused_in_the_text_of_a_grammar() -> None:
    for text in ("\ud800", "a" * 100_000 + "\ud800"):
        with pytest.raises(UnicodeEncodeError):
            _native.GrammarSpec.regex(text)
