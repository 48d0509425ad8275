"""Generating text on the CPU beside llama.cpp's server, OpenVINO GenAI and mistral.rs, in one run.

All load the same GGUF files, use the same threads and answer the same prompts greedily: so many streams at
once, each one answer. They take turns, and the order changes from round to round, so that whatever else the
machine does hits all. A peer that takes too long for a round, or cannot do it, is left out from there on, and
the table says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
from load import ask, percentile, print_table
from serve import TOPICS, Side, llama_side, llgtrt_side

from llgtrt.bench.client import Answer
from llgtrt.config.engine import demo_model

HERE = Path(__file__).parent
# No valid answer is longer than about 40 tokens but for its title: the limit on answers is above that.
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "year": {"type": "integer", "minimum": 1800, "maximum": 2030},
        "genre": {"enum": ["adventure", "mystery", "science fiction", "romance", "history"]},
        "available": {"type": "boolean"},
    },
    "required": ["title", "year", "genre", "available"],
    "additionalProperties": False,
}
WORDS = "the sea and a map of winter in the town with bees by a mill"
# Tokens of a prompt that are not its words: the template and the task.
FRAME = 22


def prompt(number: int, tokens: int) -> str:
    """About so many tokens, different from every other number's from the first words on."""
    words = WORDS.split()
    notes = " ".join(words[i % len(words)] for i in range(tokens - FRAME))
    return f"Book {number} is about {TOPICS[number % len(TOPICS)]}. Notes: {notes}"


@dataclass(frozen=True)
class Task:
    """One cell of the table: what is asked in a round."""

    tokens: int
    """Of a prompt."""

    streams: int
    schema: bool
    answer: int
    """Most tokens of an answer."""

    @property
    def name(self) -> str:
        return "schema" if self.schema else "plain"


Answerer = Callable[[Task, int], list[Answer]]


@dataclass
class Peer:
    """One program under test."""

    name: str
    ask: Answerer
    """Its answers to the prompts of a round, from a number on."""

    stop: Callable[[], None]
    rounds: dict[Task, list[list[Answer]]] = field(default_factory=dict)
    failure: str | None = None
    """Why it is left out."""


def over_http(side: Side, limit_s: float) -> Peer:
    def answers(task: Task, first: int) -> list[Answer]:
        bodies = []
        for number in range(first, first + task.streams):
            body: dict[str, Any] = {
                "messages": [{"role": "user", "content": prompt(number, task.tokens)}],
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": task.answer,
            }
            if task.schema:
                shape = {"name": "book", "schema": SCHEMA, "strict": True}
                body["response_format"] = {"type": "json_schema", "json_schema": shape}
            else:
                body["ignore_eos"] = True
            bodies.append(body)

        async def within() -> list[Answer]:
            return await asyncio.wait_for(ask(side.port, bodies), limit_s)

        return asyncio.run(within())

    return Peer(side.name, answers, side.stop)


def in_process(name: str, script: str, python: Path, options: list[str], limit_s: float) -> Peer:
    """A program with the protocol of ``openvino_peer.py``."""
    process = subprocess.Popen(
        [python, HERE / script, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    requests, lines = process.stdin, process.stdout
    written: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in lines:
            written.put(line)
        written.put("")

    threading.Thread(target=listen, daemon=True).start()

    def read() -> Any:
        line = written.get(timeout=limit_s)
        if not line:
            raise RuntimeError(f"ended with code {process.wait()}")
        return json.loads(line)

    def stop() -> None:
        process.kill()
        process.wait()

    def answers(task: Task, first: int) -> list[Answer]:
        schema = SCHEMA if task.schema else None
        batch = [
            {"prompt": prompt(number, task.tokens), "max_tokens": task.answer, "schema": schema}
            for number in range(first, first + task.streams)
        ]
        requests.write(json.dumps(batch) + "\n")
        requests.flush()
        return [Answer(**{**result, "texts_s": tuple(result["texts_s"])}) for result in read()]

    try:
        read()
    except BaseException:
        stop()
        raise
    return Peer(name, answers, stop)


def valid(answer: Answer) -> bool:
    try:
        jsonschema.validate(json.loads(answer.text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def rate(answers: list[Answer]) -> float:
    """Tokens/s from the first request to the end of the last answer."""
    start = min(answer.start_s for answer in answers)
    return sum(answer.tokens for answer in answers) / (max(a.end_s for a in answers) - start)


def reason(error: BaseException, limit_s: float) -> str:
    if isinstance(error, (TimeoutError, asyncio.TimeoutError, queue.Empty)):
        return f"a round takes over {limit_s:.0f} s"
    return f"{type(error).__name__}: {error}".splitlines()[0][:80]


def row(model: str, task: Task, peer: Peer, ours: Peer) -> list[str]:
    head = [model, str(task.tokens), str(task.streams), task.name, peer.name]
    rounds = peer.rounds.get(task, [])
    if not rounds:
        return [*head, *["-"] * 7, peer.failure or "-"]
    answers = [answer for batch in rounds for answer in batch]
    ratios = [rate(mine) / rate(theirs) for mine, theirs in zip(ours.rounds[task], rounds, strict=False)]
    ttfts = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    gaps = [gap for answer in answers for gap in answer.gaps_s]
    return [
        *head,
        f"{statistics.median(map(rate, rounds)):.1f}",
        f"{statistics.mean(answer.tokens for answer in answers):.0f}",
        "" if peer is ours else f"{statistics.median(ratios):.2f}",
        "" if peer is ours else f"{min(ratios):.2f}-{max(ratios):.2f}",
        f"{percentile(ttfts, 0.5) * 1e3:.0f}" if ttfts else "-",
        f"{percentile(gaps, 0.99) * 1e3:.0f}" if gaps else "-",
        f"{sum(map(valid, answers))}/{len(answers)}" if task.schema else "",
        peer.failure or "",
    ]


def run(peers: list[Peer], tasks: list[Task], rounds: int, limit_s: float) -> None:
    """Every task so many times, after one answer each that does not count."""
    for number in range(-1, rounds):
        for index, task in enumerate(tasks):
            for turn in range(len(peers)):
                peer = peers[(number + turn) % len(peers)]
                if peer.failure is not None:
                    continue
                warm = Task(task.tokens, 1, task.schema, task.answer if task.schema else 2)
                first = 1000 * (number + 1) + 100 * index
                try:
                    answers = peer.ask(warm if number < 0 else task, first)
                except Exception as error:  # a peer may fail in any way; the others go on
                    if peer is peers[0]:
                        raise
                    peer.failure = reason(error, limit_s)
                    peer.stop()
                    continue
                if number >= 0:
                    peer.rounds.setdefault(task, []).append(answers)


def random_model(python: Path, folder: Path, name: str) -> Path:
    path = folder / f"random-{name}.gguf"
    if not path.exists():
        script = [python, HERE / "random_model.py", "--tokenizer", demo_model(), "--type", name]
        subprocess.run([*map(str, script), "--output", str(path)], check=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="with the peers' environment; for models")
    models = "demo, or a type of random_model.py; qwen3moe and gpt-oss are mixtures of experts"
    parser.add_argument("--models", nargs="+", default=["demo", "Q4_K_M", "Q8_0"], help=models)
    parser.add_argument("--peers", nargs="+", default=["llama-server", "openvino", "mistralrs"])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16, 64])
    parser.add_argument("--long-streams", type=int, nargs="+", default=[1, 8], help="with 1000 tokens")
    parser.add_argument("--answer", type=int, default=64, help="most tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180, help="seconds for a peer's round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="one round, two models, 1 and 8 streams")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.models, arguments.rounds = arguments.models[:2], 1
        arguments.streams, arguments.long_streams, arguments.answer = [1, 8], [1], 48
    if demo_model() is None:
        sys.exit("no model: run `make setup`")
    python = arguments.folder / "venv/bin/python"

    rows = []
    for name in arguments.models:
        model = demo_model() if name == "demo" else random_model(python, arguments.folder, name)
        assert model is not None
        for streams in sorted({*arguments.streams, *arguments.long_streams}):
            tasks = [
                Task(tokens, streams, schema, arguments.answer)
                for tokens, of in ((30, arguments.streams), (1000, arguments.long_streams))
                for schema in (False, True)
                if streams in of
            ]
            context = (max(task.tokens for task in tasks) * 5 // 4 + arguments.answer + 64) // 64 * 64
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                peers = start(arguments, model, streams, context, folder, python)
                for peer in peers:
                    stack.callback(peer.stop)
                run(peers, tasks, arguments.rounds, arguments.limit)
            rows += [row(name, task, peer, peers[0]) for task in tasks for peer in peers]
            print(f"{name}: {streams} streams done", file=sys.stderr)
    print(
        f"{arguments.threads} threads, answers of up to {arguments.answer} tokens, {arguments.rounds} rounds"
    )
    header = ["model", "prompt", "streams", "answers", "program", "tok/s", "tok/answer", "llgtrt / it"]
    print_table([*header, "min-max", "TTFT p50 ms", "gap p99 ms", "valid", "note"], rows)


def start(
    arguments: argparse.Namespace, model: Path, slots: int, context: int, folder: Path, python: Path
) -> list[Peer]:
    """Ours first; a peer that does not start is there with the reason."""
    threads, limit = arguments.threads, arguments.limit
    numbers = {"model": model, "threads": threads, "slots": slots, "context": context}
    options = [text for name, value in numbers.items() for text in (f"--{name}", str(value))]
    starters: dict[str, Callable[[], Peer]] = {
        "llgtrt": lambda: over_http(llgtrt_side(model, slots, threads, folder, context), limit),
        "llama-server": lambda: over_http(llama_side(model, slots, threads, context), limit),
        "openvino": lambda: in_process("OpenVINO GenAI", "openvino_peer.py", python, options, limit),
        "mistralrs": lambda: in_process("mistral.rs", "mistralrs_peer.py", python, options, limit),
    }
    peers = [starters["llgtrt"]()]
    peers += [attempt(name, starters[name], limit) for name in arguments.peers]
    return peers


def attempt(name: str, starter: Callable[[], Peer], limit_s: float) -> Peer:
    try:
        return starter()
    except Exception as error:
        return Peer(name, lambda task, first: [], lambda: None, failure=reason(error, limit_s))


if __name__ == "__main__":
    main()
