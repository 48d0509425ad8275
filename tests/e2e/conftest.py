"""The real model behind a real server, and the stock client that talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from llgtrt.config.engine import demo_model
from support.server import ServerProcess


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The demo model's GGUF file."""
    file = demo_model()
    if file is None:
        pytest.fail("the demo model is not installed: run `make setup`")
    return file


@pytest.fixture(scope="session")
def one_thread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration for busy machines: llama.cpp's threads wait for each other by spinning. Its answers are
    the same in each run of the tests."""
    file = tmp_path_factory.mktemp("config") / "one_thread.json5"
    file.write_text("{llamacpp: {threads: 1}, runtime: {seed: 1}}")
    return file


@pytest.fixture(scope="session")
def server(model_file: Path, one_thread: Path) -> Iterator[ServerProcess]:
    """One server with the demo model for the whole run; tests leave it idle."""
    with ServerProcess(
        "serve", str(model_file), "-C", str(one_thread), "--served-model-name", "smollm2"
    ) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    """The stock client; it must not hide failures behind retries."""
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=60) as openai:
        yield openai
