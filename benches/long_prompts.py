"""Answers beside prompts of thousands of tokens: what `llamacpp.prefill_pass_ms` does to both.

Clients ask for short answers one after the other, first alone, then while others send long prompts, until
these have their first token.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import percentile, print_table
from serve import CONTEXT_TOKENS, Side, body, llgtrt_side, model_options

from llgtrt.bench.client import Answer, Exchange, read_answer, run

ANSWER_TOKENS = 32
#: More than are asked for in the time that a bench takes.
MANY = 100_000
# A word is a token of most vocabularies, with the space before it.
WORDS = ["time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"]
HEAD = ["prefill_pass_ms", "gap alone p50 ms", "p99", "gap beside p50 ms", "p99", "first token beside p50 ms"]


def long_body(number: int, words: int) -> dict[str, Any]:
    """A prompt of so many words, unlike that of any other number."""
    text = " ".join(WORDS[(index * (number + 5) + index // 7) % len(WORDS)] for index in range(words))
    content = f"Text {number}: {text}\n\nWhich word comes most often?"
    return {
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1,
        "ignore_eos": True,
    }


async def both(side: Side, clients: int, prompts: list[dict[str, Any]]) -> tuple[list[Answer], list[Answer]]:
    """The short answers that ended while the prompts were read, and those of the prompts."""
    url = f"http://127.0.0.1:{side.port}/v1/chat/completions"
    ended: list[Exchange] = []
    bodies = [body("plain", number, ANSWER_TOKENS) for number in range(MANY // clients)]
    beside = asyncio.create_task(run(url, bodies, concurrency=clients, on_end=ended.append))
    try:
        long = [read_answer(one) for one in await run(url, prompts, timeout_s=1800)]
    finally:
        beside.cancel()
    short = [read_answer(one) for one in ended]
    for answer in short + long:
        if answer.error is not None:
            raise RuntimeError(answer.error)
    return short, long


async def alone(side: Side, clients: int) -> list[float]:
    """The gaps of answers that nothing disturbs, in seconds."""
    url = f"http://127.0.0.1:{side.port}/v1/chat/completions"
    bodies = [body("plain", number, ANSWER_TOKENS) for number in range(4 * clients)]
    answers = [read_answer(one) for one in await run(url, bodies, concurrency=clients)]
    return [gap for answer in answers for gap in answer.gaps_s]


def row(side: Side, arguments: argparse.Namespace) -> list[str]:
    asyncio.run(alone(side, arguments.clients))
    quiet = asyncio.run(alone(side, arguments.clients))
    prompts = [long_body(number, arguments.words) for number in range(arguments.prompts)]
    short, long = asyncio.run(both(side, arguments.clients, prompts))
    gaps = [gap for answer in short for gap in answer.gaps_s]
    if not gaps:
        raise RuntimeError("no answer ended while the prompts were read: give more --words")
    last = max(answer.end_s for answer in long)
    seconds = last - min(answer.start_s for answer in long)
    tokens = sum(answer.input_tokens or 0 for answer in long)
    return [
        side.name,
        *(f"{percentile(quiet, part) * 1e3:.1f}" for part in (0.5, 0.99)),
        *(f"{percentile(gaps, part) * 1e3:.1f}" for part in (0.5, 0.99)),
        f"{percentile([answer.ttft_s or 0.0 for answer in short], 0.5) * 1e3:.0f}",
        f"{sum(answer.tokens for answer in short) / seconds:.0f}",
        f"{seconds:.1f}",
        f"{tokens / seconds:.0f}",
    ]


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument("--prefill-pass-ms", type=int, nargs="*", default=[150, 50, 0])
    parser.add_argument("--clients", type=int, default=1, help="that ask for short answers")
    parser.add_argument("--prompts", type=int, default=8, help="long ones, all sent at once")
    parser.add_argument("--words", type=int, default=7500, help="of a long prompt")
    arguments = parser.parse_args()

    slots, threads = arguments.clients + arguments.prompts, arguments.threads
    context = arguments.words + CONTEXT_TOKENS // 2
    rows = []
    for pass_ms in arguments.prefill_pass_ms:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            engine = {"threads": threads, "batch_threads": threads, "prefill_pass_ms": pass_ms}
            options = {"llamacpp": engine}
            side = llgtrt_side(
                arguments.model, slots, threads, folder, context, name=str(pass_ms), options=options
            )
            stack.callback(side.stop)
            rows.append(row(side, arguments))
    print(f"{arguments.clients} clients beside {arguments.prompts} prompts of {arguments.words} words")
    print_table([*HEAD, "tokens/s beside", "prompts read s", "prompt tokens/s"], rows)


if __name__ == "__main__":
    main()
