"""examples/ray_serve.py under Ray Serve itself, with replicas of the sim engine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
import ray
from ray import serve

from support import wait

ROOT = Path(__file__).parents[2]
MODEL = f"sim-{os.getpid()}"
"""By which the servers that this test started are known."""
SLOTS = 4
ARGUMENTS = (
    f"--backend sim --served-model-name {MODEL} --parallel {SLOTS} "
    "--set runtime.max_seq_len=8192 --set sim.step_us=20000 --set sim.fast_forward=false"
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


wait_until = partial(wait.wait_until, timeout_s=200, pause_s=0.2)
"""Until another process has brought something about."""


def servers() -> set[int]:
    """Processes of the servers that run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if MODEL in words and "serve" in words:
            found.add(int(folder.name))
    return found


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """Ray on this machine, and the example with at most two replicas."""
    sys.path.insert(0, str(ROOT))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}",
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
    }
    ray.init(
        num_cpus=4, include_dashboard=False, object_store_memory=100 << 20,
        runtime_env={"env_vars": environment}, log_to_driver=False,
    )  # fmt: skip
    from examples.ray_serve import build

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build({"arguments": ARGUMENTS, "slots": str(SLOTS), "max_replicas": "2"}))
    yield f"http://127.0.0.1:{port}/v1"
    serve.shutdown()
    ray.shutdown()
    wait_until(lambda: not servers(), "no server is left")


def replicas() -> int:
    """Replicas that run."""
    (application,) = serve.status().applications.values()
    (deployment,) = application.deployments.values()
    return deployment.replica_states.get("RUNNING", 0)


def client(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=200)


def ask(base_url: str, **fields: Any) -> Any:
    """A chat answer of the stock client."""
    messages: Any = [{"role": "user", "content": "A person."}]
    with client(base_url) as one:
        return one.chat.completions.create(model=MODEL, messages=messages, **fields)


def test_a_schema_a_stream_and_an_error_pass_through(base_url: str) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    answer = json.loads(ask(base_url, response_format=schema, max_tokens=100).choices[0].message.content)
    assert set(answer) == {"name", "age"}
    with client(base_url) as one:
        chunks = one.completions.create(
            model=MODEL, prompt="Go on.", max_tokens=12, stream=True, extra_body={"ignore_eos": True}
        )
        assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].text]) > 6
    with pytest.raises(openai.BadRequestError) as caught:
        ask(base_url, extra_body={"guided_regex": "("})
    assert "guided_regex" in str(caught.value)


def test_headers_pass_through(base_url: str) -> None:
    with client(base_url) as one:
        raw = one.chat.completions.with_raw_response.create(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "Go."}],
            extra_headers={"X-Request-Id": "told-by-the-client"},
            extra_body={"tools": [{"type": "web_search"}]},
        )  # fmt: skip
    assert raw.headers.get_list("x-request-id") == ["told-by-the-client"]
    assert "web_search" in raw.headers["x-llgtrt-ignored-tools"]


def test_a_client_that_leaves_ends_its_request(base_url: str) -> None:
    def aborted() -> int:
        with urllib.request.urlopen(base_url.replace("/v1", "/metrics"), timeout=30) as response:
            text = response.read().decode()
        return sum(
            int(float(value))
            for value in re.findall(
                r'^llgtrt_request_success_total\{[^}]*finished_reason="abort"[^}]*\} (\S+)$', text, re.M
            )
        )

    assert replicas() == 1
    before = aborted()
    with client(base_url) as one:
        stream = one.completions.create(
            model=MODEL, prompt="Go on.", max_tokens=8000, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
    wait_until(lambda: aborted() == before + 1, "the server has ended it")


def test_it_adds_a_replica_by_ongoing_requests(base_url: str) -> None:
    assert replicas() == 1
    running = True

    def keep_asking() -> int:
        answered = 0
        while running:
            response = ask(base_url, max_tokens=60, extra_body={"ignore_eos": True})
            assert response.usage.completion_tokens == 60
            answered += 1
        return answered

    with ThreadPoolExecutor(3 * SLOTS) as pool:
        clients = [pool.submit(keep_asking) for _ in range(3 * SLOTS)]
        try:
            wait_until(
                lambda: replicas() == 2 or any(one.done() for one in clients), "there are two replicas"
            )
        finally:
            running = False
        assert all(one.result() > 0 for one in clients)
    assert replicas() == 2
    assert len(servers()) == 2


def test_a_dead_server_is_replaced(base_url: str) -> None:
    before = servers()
    lost = min(before)
    os.kill(lost, signal.SIGKILL)
    wait_until(
        lambda: lost not in servers() and len(servers()) == len(before) and replicas() == len(before),
        "another server is there",
    )
    for _ in range(8):
        assert ask(base_url, max_tokens=4, extra_body={"ignore_eos": True}).usage.completion_tokens == 4
