"""How a service grows with its workers behind NVIDIA Dynamo's frontend, routed in turns and by KV events.

The workers run the sim engine with the times of a small GPU: a step of 20 ms, half a millisecond for each
prompt token, a prefix cache of limited size. Clients share beginnings of prompts, as agents and chats do.
Workers, frontend and clients are on this machine; the sim engine mostly waits, and the column "busy" says how
much of the CPUs all of them had. Needs .venv-dynamo (`make dynamo` makes it):

    PYTHONPATH=python:tests:tests/dynamo .venv-dynamo/bin/python benches/scaling.py
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from cluster import Cluster, Worker  # type: ignore[import-not-found]
from load import ask, cpu_seconds_by_thread, percentile, print_table

SLOTS = 8
"""Of each worker."""
STEP_US = 20_000
PREFILL_US_PER_TOKEN = 500
CACHE_TOKENS = 8192
BEGINNING_TOKENS = 400
ANSWER_TOKENS = 32


def bodies(count: int, beginnings: int, seed: int) -> list[dict[str, Any]]:
    """Requests whose prompts begin in one of so many ways, in a random order."""
    order = random.Random(seed)
    texts = [
        "".join(random.Random(1000 + index).choices("abcdefghijklmnop ", k=BEGINNING_TOKENS))
        for index in range(beginnings)
    ]
    return [
        {
            "model": "sim",
            "messages": [{"role": "user", "content": f"{order.choice(texts)} {number:06}?"}],
            "max_tokens": ANSWER_TOKENS,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for number in range(count)
    ]


def figure(worker: Worker, name: str) -> float:
    """One of a worker's metrics."""
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", worker.get("/metrics")[1], re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def cached(cluster: Cluster) -> tuple[float, float]:
    """Prompt tokens that all workers found in their caches, and all that they looked for."""
    names = ("llgtrt_prefix_cache_hits", "llgtrt_prefix_cache_queries")
    hits, queries = (sum(figure(worker, name) for worker in cluster.workers) for name in names)
    return hits, queries


def cpu_seconds(cluster: Cluster) -> float:
    """CPU time of workers, frontend and this process so far."""
    pids = [os.getpid(), cluster.frontend.process.pid, *(worker.process.pid for worker in cluster.workers)]
    return sum(sum(cpu_seconds_by_thread(pid).values()) for pid in pids)


def measure(workers: int, mode: str, per_worker: int, beginnings: int) -> list[str]:
    """A row of the table."""
    clients = SLOTS * workers
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(Path(name), "--router-mode", mode)
        try:
            for _ in range(workers):
                cluster.add(
                    "--backend", "sim", "--served-model-name", "sim",
                    "--set", f"runtime.max_batch_size={SLOTS}",
                    "--set", "runtime.max_seq_len=1024",
                    "--set", f"sim.step_us={STEP_US}",
                    "--set", f"sim.prefill_us_per_token={PREFILL_US_PER_TOKEN}",
                    "--set", f"sim.prefix_cache_tokens={CACHE_TOKENS}",
                )  # fmt: skip
            cluster.wait_for_model("sim", workers)
            # Caches and connections as they are after a while.
            uvloop.run(ask(cluster.port, bodies(4 * beginnings, beginnings, seed=1), clients))
            before, cpu, start = cached(cluster), cpu_seconds(cluster), time.monotonic()
            answers = uvloop.run(ask(cluster.port, bodies(per_worker * workers, beginnings, seed=2), clients))
            seconds = time.monotonic() - start
            after, busy = cached(cluster), (cpu_seconds(cluster) - cpu) / seconds / (os.cpu_count() or 1)
        finally:
            cluster.stop()
    latencies = [answer.e2e_s for answer in answers]
    firsts = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    hits, queries = (now - then for now, then in zip(after, before, strict=True))
    return [
        str(workers),
        mode,
        f"{len(answers) / seconds:.1f}",
        f"{percentile(firsts, 0.5) * 1e3:.0f}",
        f"{percentile(firsts, 0.99) * 1e3:.0f}",
        f"{percentile(latencies, 0.99) * 1e3:.0f}",
        f"{hits / queries:.0%}",
        f"{busy:.0%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--modes", nargs="+", default=["round-robin", "kv"])
    parser.add_argument("--requests", type=int, default=150, help="per worker")
    parser.add_argument("--beginnings", type=int, default=48, help="different beginnings of prompts")
    arguments = parser.parse_args()
    rows = [
        measure(workers, mode, arguments.requests, arguments.beginnings)
        for workers in arguments.workers
        for mode in arguments.modes
    ]
    header = ["workers", "routing", "requests/s", "TTFT p50 ms", "p99 ms", "answer p99 ms", "cached", "busy"]
    print_table(header, rows)


if __name__ == "__main__":
    main()
