"""The figures as a table for people, and the requests one by one for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from llgtrt.bench.client import Answer
from llgtrt.bench.figures import PERCENTILES

LATENCIES = {
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
    "gap_ms": "gap between events",
    "e2e_ms": "end to end",
    "late_ms": "sent later than planned",
}


def rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What is not a distribution: a name and a value each."""

    def number(value: float | None, digits: int = 2) -> str:
        return "-" if value is None else f"{value:,.{digits}f}"

    goodput, validity = result["goodput"], result["validity"]
    lines = [
        ("requests completed", f"{result['completed']} of {result['requests']}"),
        ("duration, s", number(result["duration_s"])),
        ("requests / s", number(result["requests_per_s"])),
        ("output tokens / s", number(result["output_tokens_per_s"], 1)),
        ("input and output tokens / s", number(result["tokens_per_s"], 1)),
        ("output tokens", f"{result['output_tokens']:,} (counted by {result['output_tokens_counted_by']})"),
    ]
    if result["input_tokens"] is not None:
        lines.append(("input tokens", f"{result['input_tokens']:,}"))
    if result["slos"]:
        bounds = ", ".join(f"{name} <= {most:g} ms" for name, most in result["slos"].items())
        lines.append((f"good requests ({bounds})", f"{goodput['requests']} ({goodput['share']:.1%})"))
        lines.append(("good requests / s", number(goodput["requests_per_s"])))
    if validity["checked"]:
        share = validity["valid"] / validity["checked"]
        counts = f"{validity['valid']} of {validity['checked']}"
        lines.append(("answers valid under their schema", f"{counts} ({share:.2%})"))
    return lines


def table(result: dict[str, Any]) -> Group:
    """The figures for a terminal."""
    counts = Table(show_header=False, box=None, pad_edge=False)
    counts.add_column(no_wrap=True)
    counts.add_column(justify="right")
    for name, value in rows(result):
        counts.add_row(name, value)
    latencies = Table(box=None, pad_edge=False, title_justify="left")
    latencies.add_column("milliseconds", no_wrap=True)
    columns = ["mean", *(f"p{at}" for at in PERCENTILES), "max"]
    for column in columns:
        latencies.add_column(column, justify="right")
    for key, name in LATENCIES.items():
        values = result[key]
        if values is not None:
            latencies.add_row(name, *(f"{values[column]:,.2f}" for column in columns))
    parts: list[Any] = [counts, "", latencies]
    for message, count in list(result["errors"].items())[:5]:
        parts.append(f"{count} x {message}")
    parts += [f"invalid: {problem}" for problem in result["validity"]["problems"]]
    return Group(*parts)


def details(answers: Sequence[Answer], begin_s: float) -> list[dict[str, Any]]:
    """Each request's own figures; times are in seconds from the first."""
    return [
        {
            "start_s": answer.start_s - begin_s,
            "end_s": answer.end_s - begin_s,
            "ttft_s": answer.ttft_s,
            "gaps_s": answer.gaps_s,
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.tokens,
            "finish_reason": answer.finish_reason,
            "error": answer.error,
        }
        for answer in answers
    ]
