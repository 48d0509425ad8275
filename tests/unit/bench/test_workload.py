"""Workloads: files, distributions, schedules, bodies."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from llgtrt.bench.workload import (
    WORDS,
    Ask,
    TokenDistribution,
    WorkloadError,
    arrivals,
    body_of,
    read_dataset,
    read_schemas,
)

SCHEMA = {"type": "object"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.jsonl"


def test_json_lines(file: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    items: list[Any] = [
        {"prompt": "one", "max_tokens": 7, "schema": SCHEMA},
        {"text_input": "two"},
        {"messages": messages},
    ]
    file.write_text("\n".join(map(json.dumps, items)) + "\n\n")
    assert read_dataset(file) == [
        Ask("one", max_tokens=7, schema=SCHEMA),
        Ask("two"),
        Ask("Be brief.\nHi", messages),
    ]


def test_share_gpt(file: Path) -> None:
    def turns(*texts: str) -> dict[str, Any]:
        return {"id": "x", "conversations": [{"from": "human", "value": text} for text in texts]}

    items = [turns("ask", "r" * 400, "more"), turns("short", "r"), turns("alone"), turns(""), turns()]
    expected = [Ask("ask", max_tokens=100), Ask("short", max_tokens=1), Ask("alone")]
    file.write_text(json.dumps(items))
    assert read_dataset(file) == expected
    file.write_text("\n".join(map(json.dumps, items)))
    assert read_dataset(file) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"other": 1}',
        '{"prompt": 1}',
        '{"prompt": "a", "max_tokens": 0}',
        '{"prompt": "a", "max_tokens": true}',
        '{"prompt": "a", "schema": 3}',
        '[{"conversations": []}]',
        '[{"prompt": "a"}',
    ],
)
def test_files_that_hold_something_else(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(WorkloadError, match=r"data\.jsonl"):
        read_dataset(file)


def test_schemas(file: Path) -> None:
    file.write_text('{"type": "string"}\n{"name": "n", "schema": {"const": 1}}\ntrue\n')
    assert read_schemas(file) == [{"type": "string"}, {"const": 1}, True]
    for text in ("", "3"):
        file.write_text(text)
        with pytest.raises(WorkloadError):
            read_schemas(file)


def test_a_distribution_of_tokens() -> None:
    distribution = TokenDistribution.parse("200,20,50,10")
    asks = distribution.asks(2000, seed=3)
    assert asks == distribution.asks(2000, seed=3)
    assert asks != distribution.asks(2000, seed=4)
    inputs = [len(ask.prompt.split()) for ask in asks]
    outputs = [ask.max_tokens or 0 for ask in asks]
    assert abs(mean(inputs) - 200) < 3
    assert abs(stdev(inputs) - 20) < 2
    assert abs(mean(outputs) - 50) < 2
    assert abs(stdev(outputs) - 10) < 1
    assert set(asks[0].prompt.split()) <= set(WORDS)
    assert all(ask.ignore_eos for ask in asks)
    tiny = TokenDistribution.parse("1,50,1,50").asks(500, seed=0)
    assert min(ask.max_tokens or 0 for ask in tiny) == 1
    assert all(ask.prompt for ask in tiny)


@pytest.mark.parametrize(
    "text", ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "0,1,1,1", "1,-1,1,1", "nan,1,1,1", "1,1,inf,1"]
)
def test_what_is_no_distribution(text: str) -> None:
    with pytest.raises(WorkloadError):
        TokenDistribution.parse(text)


def test_arrivals_are_a_poisson_process() -> None:
    times = arrivals(5000, 20.0, seed=1)
    assert times == arrivals(5000, 20.0, seed=1)
    assert times[0] == 0.0
    assert times == sorted(times)
    gaps = [after - before for before, after in pairwise(times)]
    # Of an exponential distribution mean and standard deviation are equal.
    assert abs(mean(gaps) - 0.05) < 0.003
    assert abs(stdev(gaps) - 0.05) < 0.003
    assert arrivals(1, 3.0, seed=0) == [0.0]


def test_bodies() -> None:
    ask = Ask("Hi", None, 9, True, SCHEMA)
    chat = body_of(ask, "chat", "m", {"temperature": 0.5, "x": 1})
    assert chat["messages"] == [{"role": "user", "content": "Hi"}]
    assert (chat["model"], chat["max_tokens"], chat["ignore_eos"]) == ("m", 9, True)
    assert chat["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (chat["temperature"], chat["x"]) == (0.5, 1)
    assert chat["stream_options"] == {"include_usage": True}
    completion = body_of(Ask("Hi", [{"role": "user", "content": "Hi"}]), "completions", "m", {})
    assert completion["prompt"] == "Hi"
    assert not {"max_tokens", "ignore_eos", "response_format", "messages"} & set(completion)
    triton = body_of(ask, "triton-generate", "m", {})
    assert (triton["text_input"], triton["end_id"], triton["max_tokens"]) == ("Hi", -1, 9)
    assert json.loads(triton["guided_decoding_guide"]) == SCHEMA
    assert "model" not in triton
