"""From answers to figures: latencies, rates, goodput, validity."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import jsonschema
import numpy as np

from llgtrt.bench.client import Answer
from llgtrt.bench.workload import Ask, WorkloadError

PERCENTILES = (50, 90, 95, 99)
MOST_PROBLEMS = 5

SloName: TypeAlias = Literal["ttft", "tpot", "e2e"]


@dataclass(frozen=True, slots=True)
class Slo:
    """A bound on one latency of a request, in milliseconds."""

    name: SloName
    most_ms: float

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Reads ``ttft:500``, ``tpot:50`` or ``e2e:5000``.

        Raises:
            WorkloadError: it is something else.
        """
        name, _, number = text.partition(":")
        try:
            most_ms = float(number)
        except ValueError:
            most_ms = -1
        if name in get_args(SloName) and most_ms > 0:
            return cls(cast(SloName, name), most_ms)
        raise WorkloadError(f"{text!r}: give ttft:MS, tpot:MS or e2e:MS")

    def holds(self, answer: Answer) -> bool:
        """Whether an answer keeps it; one of a single token keeps every bound on the time per token."""
        value = {"ttft": answer.ttft_s, "tpot": answer.tpot_s, "e2e": answer.e2e_s}[self.name]
        if value is None:
            return self.name == "tpot"
        return value * 1000 <= self.most_ms


def problem_of(ask: Ask, answer: Answer) -> str | None:
    """Why an answer does not satisfy its request's schema; None if it does, or there is none."""
    if ask.schema is None:
        return None
    try:
        value = json.loads(answer.text)
    except ValueError as error:
        return f"not JSON: {error}"
    kind = jsonschema.validators.validator_for(ask.schema, jsonschema.Draft202012Validator)
    problem = jsonschema.exceptions.best_match(kind(ask.schema).iter_errors(value))
    return None if problem is None else f"{problem.json_path}: {problem.message}"[:200]


def summary(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, percentiles (by linear interpolation) and maximum; None without values."""
    if not values:
        return None
    data = np.asarray(values, dtype=float)
    percentiles = np.percentile(data, PERCENTILES)
    return {
        "mean": float(data.mean()),
        **{f"p{at}": float(value) for at, value in zip(PERCENTILES, percentiles, strict=True)},
        "max": float(data.max()),
    }


def figures(
    asks: Sequence[Ask], answers: Sequence[Answer], slos: Sequence[Slo], late_s: Sequence[float] = ()
) -> dict[str, Any]:
    """All figures of a run, ready for JSON. Latencies count answers that are complete.

    Args:
        asks: what was asked.
        answers: the answer to each.
        slos: what a good answer keeps, beside being complete and valid.
        late_s: how much later than planned each request was sent: the generator's own delay.
    """
    done = [answer for answer in answers if answer.error is None]
    start_s = min((answer.start_s for answer in answers), default=0.0)
    duration_s = max((answer.end_s for answer in answers), default=0.0) - start_s
    problems = [
        problem_of(ask, answer) if answer.error is None else None
        for ask, answer in zip(asks, answers, strict=True)
    ]
    checked = sum(
        ask.schema is not None and answer.error is None for ask, answer in zip(asks, answers, strict=True)
    )
    invalid = [problem for problem in problems if problem is not None]
    good = sum(
        answer.error is None and problem is None and all(slo.holds(answer) for slo in slos)
        for answer, problem in zip(answers, problems, strict=True)
    )
    output_tokens = sum(answer.tokens for answer in done)
    counted = all(answer.output_tokens is not None for answer in done)
    inputs = [answer.input_tokens for answer in done if answer.input_tokens is not None]

    def per_s(count: float) -> float | None:
        return count / duration_s if duration_s > 0 else None

    def ms(values: Sequence[float | None]) -> dict[str, float] | None:
        return summary([value * 1000 for value in values if value is not None])

    return {
        "requests": len(answers),
        "completed": len(done),
        "errors": dict(Counter(answer.error for answer in answers if answer.error is not None)),
        "duration_s": duration_s,
        "requests_per_s": per_s(len(done)),
        "input_tokens": sum(inputs) if inputs else None,
        "output_tokens": output_tokens,
        "output_tokens_counted_by": "server" if counted else "events",
        "output_tokens_per_s": per_s(output_tokens),
        "tokens_per_s": per_s(output_tokens + sum(inputs)) if inputs else None,
        "input_tokens_per_request": summary(inputs),
        "output_tokens_per_request": summary([answer.tokens for answer in done]),
        "ttft_ms": ms([answer.ttft_s for answer in done]),
        "tpot_ms": ms([answer.tpot_s for answer in done]),
        "gap_ms": ms([gap for answer in done for gap in answer.gaps_s]),
        "e2e_ms": ms([answer.e2e_s for answer in done]),
        "late_ms": ms(list(late_s)),
        "slos": {slo.name: slo.most_ms for slo in slos},
        "goodput": {
            "requests": good,
            "share": good / len(answers) if answers else None,
            "requests_per_s": per_s(good),
        },
        "validity": {
            "checked": checked,
            "valid": checked - len(invalid),
            "problems": invalid[:MOST_PROBLEMS],
        },
    }
