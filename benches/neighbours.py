"""Short answers beside one that goes on: what its guesses and its long context take from its neighbours.

Clients ask for short answers one after the other while one answer, behind a prompt of so many words, repeats
itself; with guesses at next tokens and without.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from load import percentile, print_table
from long_prompts import ANSWER_TOKENS, alone, long_body
from openai import AsyncOpenAI
from serve import CONTEXT_TOKENS, Side, llgtrt_side, model_options

#: Of the one answer: more than there is time for.
MOST_TOKENS = 3000
ROUNDS = 6
HEAD = ["speculation", "words", "tokens/s of the clients", "gap p50 ms", "p99", "characters/s of the one"]


async def beside(side: Side, clients: int, words: int) -> tuple[float, list[float], float]:
    """Tokens/s of the clients, the gaps of their answers in seconds, and characters/s of the one."""
    loop = asyncio.get_running_loop()
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{side.port}/v1", api_key="none") as client:
        model = (await client.models.list()).data[0].id
        request = {**long_body(1, words), "model": model, "max_tokens": MOST_TOKENS}
        request["extra_body"] = {"ignore_eos": request.pop("ignore_eos")}
        stream = await client.chat.completions.create(**request)
        characters = 0
        started = asyncio.Event()

        async def read() -> None:
            nonlocal characters
            async for chunk in stream:
                characters += len(chunk.choices[0].delta.content or "") if chunk.choices else 0
                if characters > 0:
                    started.set()

        reading = asyncio.create_task(read())
        await started.wait()
        first, start = characters, loop.time()
        gaps: list[float] = []
        for _ in range(ROUNDS):
            gaps += await alone(side, clients)
        seconds = loop.time() - start
        if reading.done():
            raise RuntimeError("the one answer ended before the others")
        reading.cancel()
        await stream.close()
    # `alone` asks for four answers per client.
    return ROUNDS * 4 * clients * ANSWER_TOKENS / seconds, gaps, (characters - first) / seconds


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=7, help="that ask for short answers")
    parser.add_argument("--words", type=int, nargs="+", default=[300, 7000], help="of the one's prompt")
    arguments = parser.parse_args()
    rows = [
        [speculation, str(words), *row(arguments, words, speculation)]
        for words in arguments.words
        for speculation in ("off", "auto")
    ]
    print(f"{arguments.clients} clients beside one answer")
    print_table(HEAD, rows)


def row(arguments: argparse.Namespace, words: int, speculation: str) -> list[str]:
    threads = arguments.threads
    engine = {"threads": threads, "batch_threads": threads, "speculation": speculation}
    context = words + CONTEXT_TOKENS // 2 + MOST_TOKENS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = {"llamacpp": engine}
        side = llgtrt_side(arguments.model, arguments.clients + 1, threads, folder, context, options=options)
        stack.callback(side.stop)
        asyncio.run(alone(side, arguments.clients))
        rate, gaps, characters = asyncio.run(beside(side, arguments.clients, words))
    return [
        f"{rate:.0f}",
        *(f"{percentile(gaps, part) * 1e3:.1f}" for part in (0.5, 0.99)),
        f"{characters:.0f}",
    ]


if __name__ == "__main__":
    main()
