"""Extraction: JSON copied out of a text, with guesses at next tokens (`llamacpp.speculation`) and without.

Two servers of the same model take turns in every round, at one stream and at several. How many answers are
the same from both, byte for byte, is in the table. The texts are 60 order confirmations, made of lists by a
fixed rule: as different as their names, goods and numbers, 300 to 700 tokens long.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import ask, percentile, print_table
from serve import Side, llgtrt_side, model_options

from llgtrt.bench.client import Answer

DOCUMENTS = 60
CONTEXT_TOKENS = 1536
FIRST = ["Amelia", "Bogdan", "Chiara", "Dmitri", "Esther", "Farouk", "Greta", "Hiroshi", "Ingrid", "Jorge"]
LAST = ["Abernathy", "Bergstrom", "Castellano", "Dubrovsky", "Eisenhower", "Fitzgerald", "Grabowski"]
STREETS = [
    "Marlowe Avenue",
    "Old Harbour Road",
    "Kestrel Lane",
    "Rue des Tanneurs",
    "Lindenstrasse",
    "Quay Street",
]
TOWNS = ["Halifax", "Uppsala", "Bilbao", "Groningen", "Trieste", "Galway", "Tampere", "Bruges"]
GOODS = [
    "oak bookcase, five shelves", "copper saucepan 24 cm", "wool blanket, charcoal grey",
    "reading lamp with dimmer", "set of six soup bowls", "folding garden chair",
    "linen tablecloth 140 x 220", "cast iron door stop", "alarm clock, brass case",
    "umbrella stand, powder coated", "hand-woven laundry basket", "walnut picture frame A3",
    "stoneware teapot 1.2 l",
]  # fmt: skip
REMARKS = [
    "Please leave the parcels with the neighbours if nobody answers the bell.",
    "The customer asked us to take the old packaging back with the same van.",
    "Our warehouse found one box with a dent and replaced it before it was loaded.",
    "The invoice follows by letter, because the address for electronic mail bounced twice.",
    "The driver rings half an hour before, and carries everything to the second floor.",
    "Part of the order was reserved in spring and is delivered from another warehouse.",
]
SCHEMA = {
    "type": "object",
    "properties": {
        "order_number": {"type": "string"},
        "customer": {"type": "string"},
        "delivery_address": {"type": "string"},
        "items": {
            "type": "array",
            "minItems": 3,
            "maxItems": 9,
            "items": {
                "type": "object",
                "properties": {
                    "description": {"type": "string"},
                    "article": {"type": "string"},
                    "price": {"type": "string"},
                },
                "required": ["description", "article", "price"],
                "additionalProperties": False,
            },
        },
        "remarks": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string"}},
    },
    "required": ["order_number", "customer", "delivery_address", "items", "remarks"],
    "additionalProperties": False,
}


def document(number: int) -> str:
    """Text ``number``: the same every time."""

    def pick(choices: list[str], step: int) -> str:
        return choices[(number * step + step) % len(choices)]

    customer = f"{pick(FIRST, 3)} {pick(LAST, 5)}"
    address = f"{11 + number * 7 % 180} {pick(STREETS, 1)}, {pick(TOWNS, 3)}"
    lines = [
        f"ORDER CONFIRMATION No. {chr(65 + number % 26)}{2026_000 + number * 137}",
        f"Dear {customer}, thank you for your order. We deliver to {address}, on the date that you chose.",
    ]
    for item in range(5 + number % 5):
        goods = GOODS[(number * 5 + item * 4) % len(GOODS)]
        article = f"{chr(75 + item)}{(number * 7919 + item * 104_729) % 90_000 + 10_000}"
        price = f"EUR {(number * 31 + item * 57) % 400 + 12}.{(number * 13 + item * 29) % 100:02}"
        lines.append(f"Position {item + 1}: {goods}, article {article}, price {price}.")
    lines += [REMARKS[(number + remark) % len(REMARKS)] for remark in range(2 + number % 4)]
    lines.append("All prices include value added tax. Goods remain ours until they are paid for in full.")
    return "\n".join(lines)


def body(number: int) -> dict[str, Any]:
    """The request of text ``number``."""
    question = f"{document(number)}\n\nExtract the order as JSON. Copy every text word for word."
    return {
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 500,
        "response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA}},
    }


def guessing_side(arguments: argparse.Namespace, folder: Path, name: str, **llamacpp: Any) -> Side:
    """A server with its own choice of guesses, as options of ``llamacpp``."""
    threads = {"threads": arguments.threads, "batch_threads": arguments.threads}
    options = {"llamacpp": {**threads, **llamacpp}}
    return llgtrt_side(
        arguments.model,
        max(arguments.streams),
        arguments.threads,
        folder,
        CONTEXT_TOKENS,
        name=name,
        reuse=False,
        options=options,
    )


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [
            guessing_side(arguments, folder, name, speculation=speculation)
            for name, speculation in (("guessing", "auto"), ("plain", "off"))
        ]
        for side in sides:
            stack.callback(side.stop)
        bodies = [body(number) for number in range(arguments.documents)]
        rows = [measure(sides, streams, bodies) for streams in arguments.streams]
    print_table(HEAD, rows)


HEAD = ["streams", "guessing s", "plain s", "ratio of times", "tokens", "equal answers"]


def measure(sides: list[Side], streams: int, bodies: list[dict[str, Any]]) -> list[str]:
    """Rounds of as many requests as make a few answers per stream; the sides (guessing, plain) take turns."""
    per_round = max(streams * 2, 4)
    seconds: dict[str, float] = {side.name: 0.0 for side in sides}
    ratios, equal, count, tokens = [], 0, 0, 0
    for start in range(0, len(bodies), per_round):
        some = bodies[start : start + per_round]
        order = sides if start // per_round % 2 == 0 else sides[::-1]
        took: dict[str, float] = {}
        answers: dict[str, list[Answer]] = {}
        for side in order:
            began = time.perf_counter()
            answers[side.name] = asyncio.run(ask(side.port, some, streams))
            took[side.name] = time.perf_counter() - began
            seconds[side.name] += took[side.name]
        pairs = zip(answers["guessing"], answers["plain"], strict=True)
        equal += sum(one.text == other.text for one, other in pairs)
        count += len(some)
        tokens += sum(answer.tokens for answer in answers["plain"])
        ratios.append(took["plain"] / took["guessing"])
    middle = statistics.median(ratios)
    spread = f"{middle:.2f} ({percentile(ratios, 0.1):.2f} to {percentile(ratios, 0.9):.2f})"
    return [
        str(streams),
        f"{seconds['guessing']:.1f}",
        f"{seconds['plain']:.1f}",
        spread,
        str(tokens),
        f"{equal} of {count}",
    ]


if __name__ == "__main__":
    main()
