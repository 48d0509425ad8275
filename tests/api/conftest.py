"""Real servers with the simulated engine, and what clients need to talk to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.server import ServerProcess
from support.sim import FAULTS, StartServer, sim_arguments


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A fast server for the whole run; tests leave it idle."""
    config = {
        "runtime": {"max_batch_size": 16, "max_queue_size": 256},
        "sim": {"faults": FAULTS},
        "server": {"max_body_bytes": 1_000_000, "cors_origins": ["https://page.example"]},
    }
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("sim"), config)) as process:
        yield process


@pytest.fixture(scope="session")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two places, 20 ms per token, a prefill of a second for a long prompt, room for two that wait."""
    config = {
        "runtime": {"max_batch_size": 2, "max_queue_size": 2},
        "sim": {"step_us": 20_000, "prefill_chunk_tokens": 16},
        "server": {"ping_interval_s": 0.1},
    }
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("slow"), config)) as process:
        yield process


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of one's own; they are stopped after the test."""
    running: list[ServerProcess] = []

    def start(*arguments: str, wait: bool = True, **config: Any) -> ServerProcess:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        process = ServerProcess(*sim_arguments(folder, config), *arguments, wait=False)
        running.append(process)
        if wait:
            process.wait_ready()
        return process

    yield start
    for process in running:
        process.close()


@pytest.fixture(scope="session")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    """A plain HTTP client of the fast server."""
    with httpx.Client(base_url=server.base_url, timeout=60) as client:
        yield client


@pytest.fixture
def openai(server: ServerProcess) -> Iterator[OpenAI]:
    """The stock client; it must not hide failures behind retries."""
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared test data, which is not part of the repository."""
    checkout = Path(__file__).parents[2]
    folder = Path(os.environ.get("LLGTRT_SHARED", checkout.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared test data in {folder}; set LLGTRT_SHARED")
    return folder
