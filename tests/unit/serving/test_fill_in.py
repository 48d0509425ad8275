"""Prompts with a suffix: the tokens of a model, and what cannot be filled in."""

from __future__ import annotations

from typing import Any

import pytest

from llgtrt.engine import ModelInfo
from llgtrt.serving.errors import RequestError
from llgtrt.serving.fill_in import fill_in_marks, filled_in
from llgtrt.serving.protocol import CompletionRequest

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def info(**fields: Any) -> ModelInfo:
    return ModelInfo("sim", 100, 1, 300, **fields)


def test_the_file_says_it_or_the_names_of_the_tokens_do() -> None:
    assert fill_in_marks(info(fill_in=("a", "b", "c"), special_tokens=QWEN)) == ("a", "b", "c")
    assert fill_in_marks(info(special_tokens=("<s>", *reversed(QWEN)))) == QWEN
    assert fill_in_marks(info(special_tokens=QWEN[:2])) is None
    parsed = ModelInfo.parse(
        '{"backend": "sim", "max_sequence_tokens": 1, "max_batch_size": 1, "vocab_size": 1,'
        ' "fill_in": ["a", "b", "c"], "embedder": null}'
    )
    assert parsed.fill_in == ("a", "b", "c")
    assert parsed.embedder is None


def test_what_is_before_comes_before_what_is_behind() -> None:
    request = CompletionRequest(prompt=["def f(", "x"], suffix="):\n    return 1")
    assert filled_in(request, ["def f(", "x"], QWEN) == [
        "<|fim_prefix|>def f(<|fim_suffix|>):\n    return 1<|fim_middle|>",
        "<|fim_prefix|>x<|fim_suffix|>):\n    return 1<|fim_middle|>",
    ]


@pytest.mark.parametrize(
    ("fields", "prompts", "marks", "words"),
    [
        ({}, ["a"], None, "no tokens to fill in"),
        ({"echo": True}, ["a"], QWEN, "echo"),
        ({}, ["a", [1, 2]], QWEN, "text"),
    ],
)
def test_what_cannot_be_filled_in(fields: dict[str, Any], prompts: list[Any], marks: Any, words: str) -> None:
    request = CompletionRequest(prompt="a", suffix="b", **fields)
    with pytest.raises(RequestError, match=words) as caught:
        filled_in(request, prompts, marks)
    assert caught.value.param == "suffix"
