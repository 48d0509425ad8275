"""Figures of exchanges whose times the test wrote down: they are known exactly."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from llgtrt.bench.client import Answer, Exchange, read_answer
from llgtrt.bench.figures import Slo, figures, problem_of, summary
from llgtrt.bench.report import rows, table
from llgtrt.bench.workload import Ask, WorkloadError


def event(**value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(text: str, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


USAGE = event(choices=[], usage={"prompt_tokens": 11, "completion_tokens": 6})
DONE = b"data: [DONE]\n\n"


def exchanged(
    *pieces: tuple[float, bytes], start_s: float = 10.0, status: int = 200, **fields: Any
) -> Answer:
    end_s = pieces[-1][0] if pieces else start_s
    return read_answer(Exchange(start_s, start_s, end_s, status, list(pieces), **fields))


def test_times_are_those_of_arrival() -> None:
    answer = exchanged(
        (10.5, b": ping\n\n"),
        (11.0, event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])),
        (12.0, chunk("a") + chunk("b")),
        (13.0, chunk("c")[:20]),
        (13.5, chunk("c")[20:]),
        (14.0, chunk("", "stop") + USAGE),
        (14.25, DONE),
    )
    assert answer.error is None
    assert answer.text == "abc"
    assert answer.texts_s == (12.0, 12.0, 13.5)
    assert answer.ttft_s == 2.0
    assert answer.gaps_s == [0.0, 1.5]
    assert answer.e2e_s == 4.25
    assert (answer.input_tokens, answer.output_tokens, answer.finish_reason) == (11, 6, "stop")
    assert answer.tpot_s == (14.25 - 12.0) / 5


@pytest.mark.parametrize("cut", range(1, 40))
def test_lines_may_end_as_on_windows_and_come_in_two(cut: int) -> None:
    stream = (chunk("a") + chunk("b", "stop") + DONE).replace(b"\n", b"\r\n")
    cut = min(stream.index(b"\r\n\r\n") - 10 + cut, len(stream) - 1)
    answer = exchanged((11.0, stream[:cut]), (12.0, stream[cut:]))
    assert (answer.error, answer.text, answer.finish_reason) == (None, "ab", "stop")
    assert answer.texts_s[0] == (11.0 if b"\r\n\r\n" in stream[:cut] else 12.0)


def test_thoughts_count_as_text() -> None:
    for name in ("reasoning_content", "reasoning"):
        first = event(choices=[{"index": 0, "delta": {name: "hm"}, "finish_reason": None}])
        answer = exchanged((11.0, first), (12.0, chunk("a", "stop") + DONE))
        assert answer.texts_s == (11.0, 12.0)


def test_completions_and_triton() -> None:
    completion = exchanged(
        (11.0, event(choices=[{"text": "x", "finish_reason": None}])),
        (12.0, event(choices=[{"text": "y", "finish_reason": "length"}]) + DONE),
    )
    assert (completion.text, completion.finish_reason, completion.tokens) == ("xy", "length", 2)
    assert completion.output_tokens is None
    triton = exchanged(
        (11.0, event(text_output="x", num_output_tokens=3)),
        (12.0, event(text_output="y", num_output_tokens=2, finish_reason="stop")),
    )
    assert triton.error is None
    assert (triton.text, triton.finish_reason, triton.output_tokens) == ("xy", "stop", 5)
    uncounted = exchanged((11.0, event(text_output="x")), (12.0, event(text_output="y")))
    assert (uncounted.output_tokens, uncounted.tokens) == (None, 2)


@pytest.mark.parametrize(
    ("pieces", "fields", "message"),
    [
        ([(11.0, chunk("a"))], {}, "ended early"),
        ([], {}, "empty"),
        ([(11.0, b'{"error": {"message": "no room"}}')], {"status": 503}, "status 503: no room"),
        ([(11.0, b'{"error": "no such model"}')], {"status": 404}, "status 404: no such model"),
        ([(11.0, b"<html>")], {"status": 502}, "status 502: <html>"),
        ([(11.0, chunk("a")), (12.0, event(error={"message": "lost"}) + DONE)], {}, "lost"),
        ([(11.0, event(text_output="a")), (12.0, event(error="lost"))], {}, "lost"),
        ([(11.0, b"data: x\n\n" + DONE)], {}, "no JSON"),
        ([(11.0, chunk("a"))], {"failure": "timeout"}, "timeout"),
    ],
)
def test_failures(pieces: list[tuple[float, bytes]], fields: dict[str, Any], message: str) -> None:
    answer = exchanged(*pieces, **fields)
    assert answer.error is not None
    assert message in answer.error


def answer(start_s: float, *texts_s: float, tokens: int | None = None, **fields: Any) -> Answer:
    return Answer(start_s, texts_s[-1], texts_s, output_tokens=tokens, **fields)


def test_the_figures_of_a_run() -> None:
    answers = [
        answer(0.0, 1.0, 2.0, 3.0, tokens=5, input_tokens=10),
        answer(1.0, 1.5, 4.0, tokens=4, input_tokens=20),
        Answer(2.0, 5.0, error="status 503: full"),
    ]
    result = figures([Ask("a")] * 3, answers, [Slo("ttft", 900), Slo("e2e", 3000)], [0.0, 0.002, 0.004])
    assert (result["requests"], result["completed"]) == (3, 2)
    assert result["errors"] == {"status 503: full": 1}
    assert result["duration_s"] == 5.0
    assert result["requests_per_s"] == 2 / 5
    assert (result["output_tokens"], result["input_tokens"]) == (9, 30)
    assert result["output_tokens_counted_by"] == "server"
    assert result["output_tokens_per_s"] == 9 / 5
    assert result["tokens_per_s"] == 39 / 5
    assert result["ttft_ms"]["mean"] == 750
    assert result["ttft_ms"]["max"] == 1000
    assert result["gap_ms"]["p50"] == 1000
    assert result["gap_ms"]["max"] == 2500
    assert result["tpot_ms"]["max"] == pytest.approx(2500 / 3)
    assert result["e2e_ms"]["mean"] == 3000
    assert result["late_ms"]["max"] == 4
    # The first is slow to begin, the third failed.
    assert result["goodput"] == {"requests": 1, "share": 1 / 3, "requests_per_s": 1 / 5}
    assert result["validity"] == {"checked": 0, "valid": 0, "problems": []}
    json.dumps(result, allow_nan=False)


def test_a_run_without_an_answer() -> None:
    result = figures([Ask("a")], [Answer(1.0, 1.0, error="refused")], [])
    assert result["ttft_ms"] is None
    assert result["requests_per_s"] is None
    assert result["goodput"]["requests"] == 0
    json.dumps(result, allow_nan=False)


def test_validity_counts_complete_answers_under_a_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    asks = [Ask("a", schema=schema)] * 4 + [Ask("b")]
    texts = ['{"n": 1}', '{"n": "1"}', '{"n": 1', "", "free"]
    answers = [answer(0.0, 1.0, tokens=2, text=text) for text in texts]
    answers[3] = Answer(0.0, 1.0, error="timeout")
    result = figures(asks, answers, [])
    assert result["validity"]["checked"] == 3
    assert result["validity"]["valid"] == 1
    assert len(result["validity"]["problems"]) == 2
    assert result["goodput"]["requests"] == 2
    assert "$.n" in (problem_of(asks[1], answers[1]) or "")
    assert problem_of(Ask("x", schema=False), answers[0]) is not None
    assert problem_of(Ask("x", schema=True), answers[0]) is None


def test_the_table_says_all_of_it() -> None:
    schema = {"type": "integer"}
    answers = [answer(0.0, 1.0, tokens=2, text="1"), answer(0.0, 2.0, tokens=3, text="x")]
    result = figures([Ask("a", schema=schema)] * 2, answers, [Slo("ttft", 1500)], [0.0, 0.0])
    lines = dict(rows(result))
    assert lines["requests completed"] == "2 of 2"
    assert lines["answers valid under their schema"] == "1 of 2 (50.00%)"
    assert lines["good requests (ttft <= 1500 ms)"] == "1 (50.0%)"
    assert lines["output tokens / s"] == "2.5"
    assert lines["output tokens"] == "5 (counted by server)"
    console = Console(width=80, file=io.StringIO())
    console.print(table(result))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for name in (
        "time to first token",
        "time per output token",
        "sent later than planned",
        "invalid: not JSON",
    ):
        assert name in text
    assert max(map(len, text.splitlines())) <= 80


def test_percentiles_interpolate() -> None:
    values = summary([float(value) for value in range(1, 101)])
    assert values is not None
    assert values["p50"] == 50.5
    assert values["p99"] == pytest.approx(99.01)
    assert values["max"] == 100
    assert summary([]) is None


def test_slos() -> None:
    assert Slo.parse("ttft:500") == Slo("ttft", 500.0)
    for text in ("", "ttft", "ttft:", "ttft:0", "ttft:-1", "other:5", "tpot:nan"):
        with pytest.raises(WorkloadError):
            Slo.parse(text)
    one = answer(0.0, 1.0, tokens=1)
    assert Slo("tpot", 1).holds(one)
    assert Slo("ttft", 1000).holds(one)
    assert not Slo("ttft", 999).holds(one)
    assert not Slo("ttft", 1e9).holds(Answer(0.0, 1.0))
