"""What a worker of Dynamo costs: CPU microseconds of its process per token, beside the server's.

The sim engine produces one token per stream and step; everything else is the worker's own work: sampling,
text, chunks, Dynamo's runtime. The frontend is a process of its own: its cost is printed beside.
Needs .venv-dynamo (`make dynamo` makes it):

    PYTHONPATH=python:tests:tests/dynamo .venv-dynamo/bin/python benches/dynamo_worker.py
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import uvloop
from cluster import Cluster, Process, free_port  # type: ignore[import-not-found]
from frontend import llgtrt_command
from load import ask, cpu_seconds_by_thread, print_table, wait_http

from llgtrt.bench.client import Answer


async def run_streams(port: int, streams: int, tokens: int) -> list[Answer]:
    body = {
        "model": "sim",
        "messages": [{"role": "user", "content": "Go on."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return await ask(port, [body] * streams)


def measure(pids: dict[str, int], port: int, streams: int, tokens: int) -> dict[str, float]:
    """CPU microseconds per token of each process."""
    uvloop.run(run_streams(port, streams, max(tokens // 10, 1)))
    before = {name: sum(cpu_seconds_by_thread(pid).values()) for name, pid in pids.items()}
    answers = uvloop.run(run_streams(port, streams, tokens))
    count = sum(answer.tokens for answer in answers)
    assert count == streams * tokens, f"{count} tokens of {streams * tokens}"
    return {
        name: (sum(cpu_seconds_by_thread(pid).values()) - before[name]) / count * 1e6
        for name, pid in pids.items()
    }


@contextlib.contextmanager
def server(streams: int, step_ms: float, folder: Path) -> Iterator[tuple[dict[str, int], int]]:
    port = free_port()
    command = llgtrt_command(port, streams, step_ms, folder)
    arguments = [sys.executable, "-m", "llgtrt", *command[1:], "--served-model-name", "sim"]
    process = Process(folder, "server", arguments, {})
    try:
        wait_http(process.process, port, "/v1/health/ready")
        yield {"server": process.process.pid}, port
    finally:
        process.stop()


@contextlib.contextmanager
def worker(streams: int, step_ms: float, folder: Path) -> Iterator[tuple[dict[str, int], int]]:
    cluster = Cluster(folder)
    try:
        one = cluster.add(
            "--backend", "sim", "--served-model-name", "sim",
            "--set", f"runtime.max_batch_size={streams}", "--set", f"sim.step_us={int(step_ms * 1e3)}",
        )  # fmt: skip
        cluster.wait_for_model("sim", 1)
        yield {"worker": one.process.pid, "frontend": cluster.frontend.process.pid}, cluster.port
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--tokens", type=int, default=200, help="per stream")
    parser.add_argument("--step-ms", type=float, default=20.0)
    arguments = parser.parse_args()
    rows = []
    for streams in arguments.streams:
        found: dict[str, float] = {}
        for start in (server, worker):
            with tempfile.TemporaryDirectory() as name, start(streams, arguments.step_ms, Path(name)) as run:
                found |= measure(*run, streams, arguments.tokens)
        figures = [found["server"], found["worker"], found["worker"] - found["server"], found["frontend"]]
        rows.append([str(streams), *(f"{figure:.1f}" for figure in figures)])
    print_table(["streams", "server us/token", "worker us/token", "more", "frontend us/token"], rows)


if __name__ == "__main__":
    main()
