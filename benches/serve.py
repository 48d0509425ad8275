"""Serving SmolLM2 on the CPU: llgtrt beside llama.cpp's own server, in one run.

Both servers use the same GGUF file, threads, slots and context per slot, and get the same prompts. They take
turns, so that whatever else the machine does hits both. Three workloads: `plain` answers of 128 tokens,
`schema` answers, and `free` ones: each as long as the server's own answer under the schema, but without the
schema, so that the two differ by nothing but the constraint.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import ask, free_port, percentile, print_table, wait_http

from llgtrt.bench.client import Answer
from llgtrt.config.engine import demo_model

HERE = Path(__file__).parent
CONTEXT_TOKENS = 1024
TOPICS = [
    "the sea", "a lost key", "winter in Norway", "a robot cook", "the first train", "an old map",
    "bees", "a lighthouse", "the night market", "a broken clock", "two rivers", "a paper boat",
    "the tallest tree", "a quiet town", "salt", "a kite",
]  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "author": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "country": {"type": "string"}},
            "required": ["name", "country"],
            "additionalProperties": False,
        },
        "year": {"type": "integer", "minimum": 1800, "maximum": 2030},
        "genre": {"enum": ["adventure", "mystery", "science fiction", "romance", "history"]},
        "available": {"type": "boolean"},
        "characters": {
            "type": "array",
            "minItems": 2,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "role": {"enum": ["hero", "friend", "villain", "witness"]},
                    "age": {"type": "integer", "minimum": 1, "maximum": 99},
                },
                "required": ["name", "role", "age"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["title", "author", "year", "genre", "available", "characters"],
    "additionalProperties": False,
}


WORKLOADS = ("plain", "schema", "free")


def body(workload: str, number: int, length: int = 128) -> dict[str, Any]:
    """Request ``number`` of a workload: the same for every server, different from every other number.

    ``length`` is the number of tokens of an unconstrained answer.
    """
    topic = TOPICS[number % len(TOPICS)]
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Invent book number {number} about {topic}."}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if workload != "schema":
        return {**fields, "max_tokens": length, "ignore_eos": True}
    response_format = {
        "type": "json_schema",
        "json_schema": {"name": "book", "schema": SCHEMA, "strict": True},
    }
    return {**fields, "max_tokens": 256, "response_format": response_format}


class Side:
    """One server and its results, by workload: one list of answers per round."""

    def __init__(self, name: str, command: list[str], port: int, ready: str) -> None:
        self.name = name
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.rounds: dict[str, list[list[Answer]]] = {}
        wait_http(self.process, port, ready)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def llgtrt_side(
    model: Path,
    slots: int,
    threads: int,
    folder: Path,
    context: int = CONTEXT_TOKENS,
    *,
    name: str = "llgtrt",
    reuse: bool = True,
    options: dict[str, Any] | None = None,
) -> Side:
    port = free_port()
    config = folder / f"llgtrt-{port}.json5"
    content = {
        "runtime": {"max_batch_size": slots, "max_seq_len": context, "enable_kv_cache_reuse": reuse},
        "llamacpp": {"threads": threads, "batch_threads": threads},
        **(options or {}),
    }
    config.write_text(json.dumps(content))
    executable = str(Path(sys.executable).with_name("llgtrt"))
    command = [executable, "serve", str(model), "-C", str(config), "-H", "127.0.0.1", "-p", str(port), "-q"]
    return Side(name, command, port, "/v1/health/ready")


def llama_side(model: Path, slots: int, threads: int, context: int = CONTEXT_TOKENS) -> Side:
    port = free_port()
    options = {"model": model, "port": port, "threads": threads, "slots": slots, "context": context}
    command = [sys.executable, str(HERE / "llama_server.py")]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    return Side("llama-server", command, port, "/health")


def tokens_per_second(answers: list[Answer], clients: int) -> float:
    """While every client is busy: from the first request until a client finds none left to send.

    What comes after that is answers of unequal length that end one by one, a tail that says more about the
    number of requests than about the server. An answer that reaches into it counts for its part before.
    """
    start = min(answer.start_s for answer in answers)
    end = sorted(answer.end_s for answer in answers)[-clients]
    tokens = 0.0
    for answer in answers:
        inside = max(0.0, min(answer.end_s, end) - answer.start_s)
        tokens += answer.tokens * inside / (answer.end_s - answer.start_s)
    return tokens / (end - start)


def wall_s(answers: list[Answer]) -> float:
    return max(answer.end_s for answer in answers) - min(answer.start_s for answer in answers)


def run_round(side: Side, workload: str, clients: int, first: int, count: int) -> None:
    """One workload of a round, entered into the side's results."""
    lengths = [128] * count
    if workload == "free":
        lengths = [answer.tokens for answer in side.rounds["schema"][-1]]
    bodies = [body(workload, first + index, length) for index, length in enumerate(lengths)]
    side.rounds.setdefault(workload, []).append(asyncio.run(ask(side.port, bodies, clients)))


def cost_of_constraints(clients: int, side: Side) -> str:
    """Tokens/s under the schema over those of the unconstrained answers of the same lengths."""
    pairs = zip(side.rounds["schema"], side.rounds["free"], strict=True)
    ratios = [tokens_per_second(a, clients) / tokens_per_second(b, clients) for a, b in pairs]
    return f"{clients} clients, {side.name}: schema / free {statistics.median(ratios):.2f}"


def table_row(clients: int, workload: str, side: Side, peer: Side) -> list[str]:
    rounds = side.rounds[workload]
    answers = [answer for batch in rounds for answer in batch]
    rates = [tokens_per_second(batch, clients) for batch in rounds]
    gaps = [gap for answer in answers for gap in answer.gaps_s]
    ratios = [
        tokens_per_second(ours, clients) / tokens_per_second(theirs, clients)
        for ours, theirs in zip(rounds, peer.rounds[workload], strict=True)
    ]
    return [
        f"{clients} {workload}",
        side.name,
        f"{statistics.median(len(batch) / wall_s(batch) for batch in rounds):.2f}",
        f"{statistics.median(rates):.0f}",
        f"{min(rates):.0f}-{max(rates):.0f}",
        f"{statistics.median(ratios):.2f}x" if side is not peer else "1",
        f"{statistics.mean(a.tokens for a in answers):.0f}",
        f"{percentile([a.ttft_s or 0.0 for a in answers], 0.5) * 1e3:.0f}",
        f"{percentile(gaps, 0.5) * 1e3:.1f}",
        f"{percentile(gaps, 0.99) * 1e3:.1f}",
        f"{sum(a.finish_reason == 'stop' for a in answers)}/{len(answers)}",
    ]


def model_options(description: str) -> argparse.ArgumentParser:
    """What every bench of a served model takes; --model is required where the demo model is not installed."""
    parser = argparse.ArgumentParser(description=description)
    demo = demo_model()
    parser.add_argument(
        "--model",
        type=Path,
        default=demo,
        required=demo is None,
        help="a GGUF file; the demo model",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser


def add_rounds(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Options of benches whose sides take turns."""
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])


def main() -> None:
    parser = model_options(__doc__ or "")
    add_rounds(parser, 5)
    parser.add_argument(
        "--requests", type=int, default=0, help="per round; 0: 4 for 1 client, 3 per client else"
    )
    arguments = parser.parse_args()

    rows = []
    costs = []
    for clients in arguments.clients:
        count = arguments.requests or (4 if clients == 1 else 3 * clients)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            peer = llama_side(arguments.model, clients, arguments.threads)
            stack.callback(peer.stop)
            ours = llgtrt_side(arguments.model, clients, arguments.threads, folder)
            stack.callback(ours.stop)
            for side in (ours, peer):
                for workload in WORKLOADS:
                    run_round(side, workload, clients, 100_000, clients)
                side.rounds.clear()
            for number in range(arguments.rounds):
                for workload in WORKLOADS:
                    for side in (ours, peer) if number % 2 else (peer, ours):
                        run_round(side, workload, clients, 1000 * number, count)
                print(f"{clients} clients: round {number + 1} of {arguments.rounds}", file=sys.stderr)
            for workload in WORKLOADS:
                rows += [table_row(clients, workload, side, peer) for side in (ours, peer)]
            costs += [cost_of_constraints(clients, side) for side in (ours, peer)]
    print(f"{arguments.model.name}, {arguments.threads} threads, {CONTEXT_TOKENS} tokens of context per slot")
    header = [
        "clients",
        "server",
        "req/s",
        "tok/s",
        "min-max",
        "ratio",
        "tok/req",
        "TTFT p50 ms",
        "gap p50 ms",
    ]
    print_table([*header, "gap p99 ms", "stop"], rows)
    print("\n".join(costs))


if __name__ == "__main__":
    main()
