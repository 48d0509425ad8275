"""Dynamo's router sends a prompt where its beginning is cached: stock client, real frontend, two workers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from cluster import Cluster, Worker, wait_until

CACHED = (
    "--backend", "sim", "--served-model-name", "sim", "--set", "runtime.max_seq_len=2048",
    "--set", "sim.prefix_cache_tokens=65536",
)  # fmt: skip


def beginning(shop: int) -> str:
    """Some 25 blocks of 16 bytes, which are the sim engine's tokens."""
    return f"You are the clerk of shop number {shop}. " * 12


def harbour(boats: int) -> str:
    """A text of more than a hundred tokens for the demo model."""
    return f"The harbour of the old town has {boats} boats. " * 20


def start(folder: Path, mode: str, arguments: tuple[str, ...], name: str) -> Cluster:
    cluster = Cluster(folder, "--router-mode", mode)
    try:
        for _ in range(2):
            cluster.add(*arguments)
        cluster.wait_for_model(name, 2)
    except BaseException:
        cluster.stop()
        raise
    return cluster


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    """Two workers behind a router that knows what they have cached."""
    cluster = start(tmp_path, "kv", CACHED, "sim")
    yield cluster
    cluster.stop()


@pytest.fixture
def in_turns(tmp_path: Path) -> Iterator[Cluster]:
    """Two workers that get requests in turns."""
    cluster = start(tmp_path, "round-robin", CACHED, "sim")
    yield cluster
    cluster.stop()


def ask(cluster: Cluster, text: str, model: str = "sim") -> tuple[int, int]:
    """Tokens of the prompt, and how many of them were cached."""
    with openai.OpenAI(base_url=cluster.base_url, api_key="none", max_retries=0, timeout=200) as client:
        usage = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], max_tokens=4
        ).usage
    assert usage is not None
    details: Any = usage.prompt_tokens_details
    return usage.prompt_tokens, 0 if details is None else details.cached_tokens or 0


def figure(worker: Worker, name: str) -> int:
    """A figure of a worker's metrics, over all labels."""
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", worker.get("/metrics")[1], re.MULTILINE)
    return int(sum(float(value) for value in found))


def served(cluster: Cluster) -> list[int]:
    """Requests that each worker has answered, without those of health checks, which have short prompts."""
    return [figure(worker, "llgtrt_prefix_cache_queries") for worker in cluster.workers]


def shops(cluster: Cluster, count: int, each: int) -> tuple[Counter[int], float]:
    """Asks ``each`` questions at every one of ``count`` shops, shop after shop in turns.

    Gives how many went to the worker that had the shop's first question, and the part of tokens cached.
    """
    homes: dict[int, int] = {}
    kept: Counter[int] = Counter()
    prompt = cached = 0
    for question in range(each):
        for shop in range(count):
            before = served(cluster)
            tokens, found = ask(cluster, beginning(shop) + f"Question {question}?")
            after = served(cluster)
            grown = [now - then for then, now in zip(before, after, strict=True)]
            worker = grown.index(max(grown))
            if question:
                kept[shop] += worker == homes[shop]
                prompt, cached = prompt + tokens, cached + found
            else:
                homes[shop] = worker
    return kept, cached / prompt


def test_a_shared_beginning_goes_to_one_worker(routed: Cluster) -> None:
    kept, cached = shops(routed, count=6, each=6)
    assert sum(kept.values()) >= 27, (kept, cached)
    assert cached > 0.8, (kept, cached)


def test_without_such_a_router_beginnings_are_spread(in_turns: Cluster) -> None:
    """So that the test above says something."""
    kept, _ = shops(in_turns, count=5, each=4)
    assert sum(kept.values()) <= 10, kept


def test_a_router_that_starts_later_learns_what_is_there(routed: Cluster, tmp_path: Path) -> None:
    for shop in range(4):
        ask(routed, beginning(shop) + "First?")
    late = tmp_path / "late"
    late.mkdir()
    second = Cluster(late, "--router-mode", "kv", discovery=routed.environment["DYN_FILE_KV"])
    try:
        second.wait_for_model("sim", 2)
        found = [ask(second, beginning(shop) + "Second?") for shop in range(4)]
    finally:
        second.stop()
    assert sum(cached for _, cached in found) > 0.7 * sum(tokens for tokens, _ in found), found


def test_the_demo_models_slots_are_told_and_overwritten(tmp_path: Path) -> None:
    arguments = (
        "--served-model-name", "demo", "--set", "runtime.max_seq_len=1024",
        "--set", "runtime.max_batch_size=2", "--threads", "1",
    )  # fmt: skip
    cluster = start(tmp_path, "kv", arguments, "demo")
    try:
        again = []
        for boats in range(5):
            ask(cluster, harbour(boats), "demo")
            again.append(ask(cluster, harbour(boats) + "Why?", "demo"))
        lost, found = ask(cluster, harbour(0) + "Who?", "demo")
    finally:
        cluster.stop()
    # By chance all five would find their worker once in 32 times.
    tokens = sum(tokens for tokens, _ in again)
    assert sum(cached for _, cached in again) > 0.9 * tokens, again
    assert found < 0.3 * lost, "four slots have held four others since"


def test_a_worker_says_that_it_publishes_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "--router-mode", "kv", "--no-router-kv-events")
    try:
        worker = cluster.add(*CACHED, "--no-publish-kv-events")
        cluster.wait_for_model("sim", 1)
        _, none = ask(cluster, beginning(1))
        tokens, cached = ask(cluster, beginning(1))
        wait_until(lambda: worker.requests() == 0, "it is idle")
    finally:
        cluster.stop()
    assert none == 0
    assert cached > 0.8 * tokens
