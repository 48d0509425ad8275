"""Requests as Dynamo's frontend sends them: every member is honoured, or refused with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llgtrt.dynamo.constraint import guided_constraint
from llgtrt.dynamo.request import read_request
from llgtrt.serving.errors import RequestError
from llgtrt.tools import ControlTokens

STOPPING = {
    "max_tokens": 30,
    "stop": ["zz"],
    "stop_token_ids": [7],
    "stop_token_ids_visible": None,
    "stop_token_ids_hidden": [257, 300],
    "min_tokens": 2,
    "ignore_eos": None,
    "max_thinking_tokens": None,
}
SAMPLING = {
    "n": 2,
    "best_of": 2,
    "presence_penalty": 0.5,
    "frequency_penalty": None,
    "repetition_penalty": 1.100000023841858,
    "temperature": 0.30000001192092896,
    "top_p": 0.8999999761581421,
    "top_k": -1,
    "min_p": 0.10000000149011612,
    "use_beam_search": None,
    "length_penalty": None,
    "seed": -5,
    "include_stop_str_in_output": True,
    "guided_decoding": {"json": {"type": "object"}},
}


def request(**changes: Any) -> dict[str, Any]:
    """What version 1.6 of the frontend sends, with some members changed: ``sampling_options__n=3``."""
    asked: dict[str, Any] = {
        "model": "probe",
        "token_ids": [1, 2, 3],
        "stop_conditions": dict(STOPPING),
        "sampling_options": dict(SAMPLING),
        "output_options": {
            "logprobs": 2,
            "prompt_logprobs": None,
            "skip_special_tokens": None,
            "formatted_prompt": None,
            "return_tokens_as_token_ids": None,
        },
        "eos_token_ids": [257],
        "mdc_sum": "237a4abc",
        "annotations": ["foo:bar"],
        "routing": {},
        "router_config_override": None,
    }
    for path, value in changes.items():
        section, _, name = path.rpartition("__")
        (asked[section] if section else asked)[name] = value
    return asked


def test_every_member_has_its_meaning() -> None:
    asked = read_request(request())
    fields = asked.fields
    assert asked.tokens == [1, 2, 3]
    assert (fields.max_tokens, fields.min_tokens, fields.stop) == (30, 2, ["zz"])
    # What ends answers anyway is no stop token of the request.
    assert fields.stop_token_ids == [7, 300]
    assert (fields.n, fields.seed, fields.top_k) == (2, -5, -1)
    assert fields.temperature == pytest.approx(0.3)
    assert fields.top_p == pytest.approx(0.9)
    assert fields.min_p == pytest.approx(0.1)
    assert fields.repetition_penalty == pytest.approx(1.1)
    assert (fields.presence_penalty, fields.frequency_penalty) == (0.5, None)
    assert fields.include_stop_str_in_output is True
    assert asked.guided == {"json": {"type": "object"}}
    assert asked.guided_path == "sampling_options.guided_decoding"
    assert (asked.logprobs, asked.control_text, asked.reasoning, asked.probe) == (2, False, False, False)
    assert asked.generated_tokens == 0


def test_what_the_worker_knows_to_end_answers_is_no_stop_token() -> None:
    assert read_request(request(), [300]).fields.stop_token_ids == [7]


def test_the_shortest_request_is_the_runtimes_own() -> None:
    asked = read_request({"token_ids": [1], "stop_conditions": {"max_tokens": 1}, "_HEALTH_CHECK": True})
    assert asked.probe
    assert asked.guided == {}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [1, True]}, "token_ids"),
        ({"sampling_options": 7}, "sampling_options"),
        ({"sampling_options__temperature": -1.0}, "sampling_options.temperature"),
        ({"sampling_options__top_p": 1.5}, "sampling_options.top_p"),
        ({"sampling_options__use_beam_search": True}, "sampling_options.use_beam_search"),
        ({"sampling_options__length_penalty": 0.5}, "sampling_options.length_penalty"),
        ({"sampling_options__best_of": 5}, "sampling_options.best_of"),
        ({"sampling_options__mirostat": 2}, "sampling_options.mirostat"),
        ({"sampling_options__guided_decoding": "a+"}, "sampling_options.guided_decoding"),
        ({"stop_conditions__max_tokens": -7}, "stop_conditions.max_tokens"),
        ({"stop_conditions__stop": [1]}, "stop_conditions.stop"),
        ({"stop_conditions__stop_token_ids": ["a"]}, "stop_conditions.stop_token_ids"),
        ({"stop_conditions__stop_token_ids_visible": [5]}, "stop_conditions.stop_token_ids_visible"),
        ({"stop_conditions__max_thinking_tokens": -1}, "stop_conditions.max_thinking_tokens"),
        ({"stop_conditions__stop_regex": "a"}, "stop_conditions.stop_regex"),
        ({"output_options__prompt_logprobs": 1}, "output_options.prompt_logprobs"),
        ({"output_options__logprobs": 21}, "output_options.logprobs"),
        ({"routing__lora_name": 5}, "routing.lora_name"),
        ({"prefill_result": {"a": 1}}, "prefill_result"),
        ({"multi_modal_data": {"image_url": []}}, "multi_modal_data"),
    ],
)
def test_what_is_not_done_is_refused_with_its_path(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_request(request(**changes))
    assert (caught.value.param or "").startswith(param)


def annotation(**members: Any) -> list[str]:
    return ["llgtrt:" + json.dumps(members)]


def test_an_annotation_carries_a_constraint_and_tells_what_was_generated() -> None:
    guided = {"json": {"type": "object"}, "regex": None}
    changes: dict[str, Any] = {
        "sampling_options__guided_decoding": None,
        "annotations": annotation(guided_decoding=guided, max_tokens=50),
    }
    first = read_request(request(**changes, stop_conditions__max_tokens=50))
    assert (first.generated_tokens, first.guided) == (0, {"json": {"type": "object"}})
    assert first.guided_path == "annotations[0].guided_decoding"
    # The frontend counts down as it puts what was generated behind the prompt.
    moved = read_request(request(**changes, stop_conditions__max_tokens=48, token_ids=[1, 2, 3, 9, 9]))
    assert moved.generated_tokens == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": ["llgtrt:{"]},
        {"annotations": annotation(guided_decoding={"regex": "a"})},
        {"annotations": annotation(guided_decoding={"regex": "a"}, max_tokens=20)},
        {"annotations": annotation(guided_decoding={"regex": "a"}, max_tokens=True)},
        {"annotations": annotation(guided_decoding="a", max_tokens=30)},
        {"annotations": annotation(guided_decoding={"regex": "a"}, max_tokens=30) * 2},
        {
            "annotations": annotation(guided_decoding={"regex": "a"}, max_tokens=30),
            "sampling_options__guided_decoding": {"regex": "a"},
        },
    ],
)
def test_an_annotation_that_says_less_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        read_request(request(**{"sampling_options__guided_decoding": None, **changes}))
    assert (caught.value.param or "").startswith("annotations[")


@pytest.mark.parametrize(
    ("guided", "kind", "path"),
    [
        ({"json": {"type": "object"}}, "json_schema", "g.json"),
        ({"json": {"type": "object"}, "whitespace_pattern": " ", "backend": "x"}, "json_schema", "g.json"),
        ({"regex": "a+"}, "regex", "g.regex"),
        ({"choice": ["a", "b"]}, "choice", "g.choice"),
        ({"grammar": 'start: "a"'}, "lark", "g.grammar"),
        ({"grammar": 'root ::= "a"'}, "lark", "g.grammar"),
        (
            {"structural_tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}},
            "llguidance",
            "g.structural_tag",
        ),
    ],
)
def test_guided_decoding_is_a_constraint(guided: dict[str, Any], kind: str, path: str) -> None:
    constraint = guided_constraint(guided, "g", ControlTokens())
    assert constraint is not None
    assert (constraint.grammar.kind, constraint.param) == (kind, path)


@pytest.mark.parametrize(
    ("guided", "param"),
    [
        ({"regex": "a", "json": {}}, "g.json"),
        ({"regex": ""}, "g.regex"),
        ({"choice": []}, "g.choice"),
        ({"choice": "ab"}, "g.choice"),
        ({"grammar": 5}, "g.grammar"),
        ({"lark": "start: x"}, "g.lark"),
        ({"whitespace_pattern": " "}, "g.whitespace_pattern"),
        ({"regex": "a", "whitespace_pattern": " "}, "g.whitespace_pattern"),
        ({"structural_tag": {"format": {"type": "qwen_xml_parameter"}}}, "g.structural_tag.format.type"),
    ],
)
def test_a_constraint_that_is_none_is_refused_with_its_path(guided: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        guided_constraint(guided, "g", ControlTokens())
    assert caught.value.param == param


def test_nothing_guided_is_free_text() -> None:
    assert guided_constraint({"backend": "xgrammar"}, "g", ControlTokens()) is None
