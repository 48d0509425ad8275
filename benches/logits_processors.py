"""What logits processors cost: answers of one server without any, and with ones that do nothing, ban and add.

Rates beside each other, and from the server's own metrics how long the engine's thread is with a row.
"""

from __future__ import annotations

import asyncio
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import ask, print_table
from serve import add_rounds, body, llgtrt_side, model_options, wall_s

PROCESSORS = """
import math

def nothing(arguments):
    return lambda prompt_ids, generated_ids, logits: None

def ban(arguments):
    def process(prompt_ids, generated_ids, logits):
        for token in range(5):
            logits[token] = -math.inf
    return process

def numpy_bias(arguments):
    import numpy
    bias = numpy.zeros(arguments["width"], numpy.float32)
    def process(prompt_ids, generated_ids, logits):
        row = numpy.asarray(logits)
        row += bias
    return process
"""
NAMES = [None, "nothing", "ban", "numpy_bias"]
METRICS = [f"llgtrt_logits_processor_{what}_total" for what in ("rows", "seconds")]


def figures(port: int) -> list[float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        text: str = response.read().decode()
    return [float(text.split(f"\n{name} ", 1)[1].split("\n", 1)[0]) for name in METRICS]


def requests(name: str | None, first: int, count: int, width: int) -> list[dict[str, Any]]:
    chosen = {} if name is None else {"logits_processors": [{"name": name, "args": {"width": width}}]}
    return [{**body("plain", first + index), **chosen} for index in range(count)]


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    add_rounds(parser, 5)
    arguments = parser.parse_args()
    rows = []
    for clients in arguments.clients:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            file = folder / "processors.py"
            file.write_text(PROCESSORS)
            named = [f"{file}:{name}" for name in NAMES if name is not None]
            side = llgtrt_side(
                arguments.model,
                clients,
                arguments.threads,
                folder,
                options={"py": {"logits_processors": named}},
            )
            stack.callback(side.stop)
            rates: dict[str | None, list[float]] = {name: [] for name in NAMES}
            spent: dict[str | None, list[float]] = {name: [0.0, 0.0] for name in NAMES}
            for number in range(-1, arguments.rounds):
                for name in NAMES:
                    before = figures(side.port)
                    bodies = requests(name, 1000 * (number + 1), 2 * clients, arguments.width)
                    answers = asyncio.run(ask(side.port, bodies, clients))
                    if number < 0:
                        continue
                    rates[name].append(sum(answer.tokens for answer in answers) / wall_s(answers))
                    after = figures(side.port)
                    spent[name] = [
                        sum(one) for one in zip(spent[name], after, [-one for one in before], strict=True)
                    ]
            for name in NAMES:
                count, seconds = spent[name]
                cost = f"{1e6 * seconds / count:.0f}" if count else "-"
                rate = f"{sorted(rates[name])[len(rates[name]) // 2]:.0f}"
                rows.append([f"{clients} {name or 'none'}", rate, cost])
    print_table(["clients, processor", "tokens/s", "us per row"], rows)


if __name__ == "__main__":
    main()
