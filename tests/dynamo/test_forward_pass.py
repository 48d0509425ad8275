"""What Dynamo's own subscriber hears of the forward passes of a worker of ours."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
from cluster import Cluster, Process, wait_until

SLOTS, REQUESTS, MOST_TOKENS, STEP_US = 2, 5, 3000, 20_000


def ask(cluster: Cluster, max_tokens: int) -> int:
    """Has an answer generated; the prompt's tokens."""
    with openai.OpenAI(base_url=cluster.base_url, api_key="none", max_retries=0) as client:
        response = client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": "Go on."}],
            max_tokens=max_tokens,
            extra_body={"ignore_eos": True},
        )
    assert response.usage is not None
    return response.usage.prompt_tokens


def test_dynamos_subscriber_hears_what_runs_and_what_waits(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    messages = tmp_path / "messages.jsonl"
    command = [sys.executable, "-m", "dynamo.common.recv_forward_pass_metrics", "--discovery-backend", "file"]
    command += ["--component", "llgtrt", "--output", str(messages), "--flush-interval", "0.1"]
    pool, recorder = ThreadPoolExecutor(REQUESTS), None

    def heard(what: str, condition: Callable[[dict[str, Any], dict[str, Any]], bool]) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            lines = messages.read_text().splitlines(keepends=True) if messages.exists() else []
            whole = [json.loads(line)["metrics"] for line in lines if line.endswith("\n")]
            fit = (m for m in whole if condition(m["scheduled_requests"], m["queued_requests"]))
            # Without a time it is the last state that is told, and no pass.
            return next((m for m in fit if m["wall_time"] or not any(m["scheduled_requests"].values())), None)

        message: dict[str, Any] = wait_until(found, what)
        return message

    def ask_until_the_end(_index: int) -> None:
        # Nobody waits for the ends of these.
        with contextlib.suppress(openai.APIError):
            ask(cluster, MOST_TOKENS)

    try:
        engine = ("--set", f"sim.step_us={STEP_US}", "--set", f"runtime.max_batch_size={SLOTS}")
        cluster.add("--backend", "sim", "--served-model-name", "sim", *engine)
        cluster.wait_for_model("sim", 1)
        recorder = Process(tmp_path, "recorder", command, cluster.environment)
        idle = heard("the worker is idle", lambda scheduled, queued: not any(scheduled.values()))
        prompt = ask(cluster, 1)
        for index in range(REQUESTS):
            pool.submit(ask_until_the_end, index)
        busy = heard(
            "two generate and three wait",
            lambda scheduled, queued: (
                scheduled["num_decode_requests"] == SLOTS
                and not scheduled["num_prefill_requests"]
                and queued["num_prefill_requests"] == REQUESTS - SLOTS
            ),
        )
        assert busy["worker_id"] == idle["worker_id"] != ""
        assert busy["queued_requests"]["sum_prefill_tokens"] == (REQUESTS - SLOTS) * prompt
        kv_tokens = busy["scheduled_requests"]["sum_decode_kv_tokens"]
        # In their first pass nothing that they generated is in the cache yet.
        assert SLOTS * prompt <= kv_tokens <= SLOTS * (prompt + MOST_TOKENS)
        # The engine's own times, of every pass.
        assert busy["wall_time"] == STEP_US / 1e6
        heard("a prompt is evaluated", lambda scheduled, queued: scheduled["sum_prefill_tokens"] >= prompt)
    finally:
        if recorder is not None:
            recorder.stop()
        cluster.stop()
        pool.shutdown()
