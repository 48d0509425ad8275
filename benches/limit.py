"""What it costs that answers end valid at their limit: `at_limit: close` beside `cut`.

One server; close and cut take turns within every round, with the same prompts at temperature 0. The schema
bounds its texts, so that nearly all answers end before their limit: where they are equal, the two differ by
nothing but the search for ways out. Far is a limit of 3000 tokens, where nothing is looked for; near, every
token is compared with the way out.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import ask, percentile, print_table
from serve import SCHEMA, add_rounds, body, llgtrt_side, model_options, wall_s

from llgtrt.bench.client import Answer

LIMITS = {"far": 3000, "near": 250}
CONTEXT_TOKENS = 4096


def bounded(schema: Any) -> Any:
    """The schema with an end to its texts: a model may go on with one until the limit."""
    if not isinstance(schema, dict):
        return schema
    end = {"maxLength": 40} if schema.get("type") == "string" else {}
    return {name: bounded(value) for name, value in schema.items()} | end


def request(number: int, limit: int, at_limit: str) -> dict[str, Any]:
    schema = {"name": "book", "schema": bounded(SCHEMA)}
    form = {"type": "json_schema", "json_schema": schema}
    return {**body("schema", number), "response_format": form, "max_tokens": limit, "at_limit": at_limit}


def rate(answers: list[Answer]) -> float:
    return sum(answer.tokens for answer in answers) / wall_s(answers)


def measure(port: int, clients: int, rounds: int, per_round: int, limit: int) -> list[str]:
    """Rates of both ways, and the ratio of each round."""
    ratios, rates, equal, count = [], [], 0, 0
    for number in range(rounds):
        answers: dict[str, list[Answer]] = {}
        for at_limit in ("close", "cut") if number % 2 else ("cut", "close"):
            bodies = [request(1000 * number + index, limit, at_limit) for index in range(per_round)]
            answers[at_limit] = asyncio.run(ask(port, bodies, clients))
        rates.append(rate(answers["close"]))
        ratios.append(rates[-1] / rate(answers["cut"]))
        pairs = zip(answers["close"], answers["cut"], strict=True)
        equal += sum(one.text == other.text for one, other in pairs)
        count += per_round
    spread = f"{percentile(ratios, 0.1):.3f} to {percentile(ratios, 0.9):.3f}"
    return [
        f"{statistics.median(rates):.0f}",
        f"{statistics.median(ratios):.3f}",
        spread,
        f"{equal} of {count}",
    ]


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    add_rounds(parser, 20)
    arguments = parser.parse_args()
    rows = []
    for clients in arguments.clients:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            side = llgtrt_side(
                arguments.model, clients, arguments.threads, folder, CONTEXT_TOKENS, reuse=False
            )
            stack.callback(side.stop)
            # Prompts of their own: the grammar is compiled, the lexer has learned.
            asyncio.run(
                ask(side.port, [request(900_000 + index, 250, "close") for index in range(8)], clients)
            )
            for name, limit in LIMITS.items():
                figures = measure(side.port, clients, arguments.rounds, max(4, 2 * clients), limit)
                rows.append([f"{clients} {name}", *figures])
    print_table(["clients", "tokens/s", "close / cut", "tenth to ninth", "equal answers"], rows)


if __name__ == "__main__":
    main()
