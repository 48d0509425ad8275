"""Servers for the stock clients, and the judge between them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from judge import Judge

from support.server import ServerProcess

KEY = "sk-of-the-clients"

CALLS = "Let me see.\n" + "\n".join(
    f'<tool_call>\n{{"name": "Weather", "arguments": {{"city": "{city}", "days": {days}}}}}\n</tool_call>'
    for city, days in (("Rome", 2), ("Paris", 3))
)
"""In the call format of templates without tools, such as that of the simulated engine."""


@pytest.fixture(scope="session")
def sim_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Random words, and random valid answers where a constraint asks for them."""
    file = tmp_path_factory.mktemp("sim") / "sim.json5"
    file.write_text(json.dumps({"runtime": {"max_seq_len": 16384}}))
    arguments = ["--backend", "sim", "-C", str(file), "--served-model-name", "sim", "--api-key", KEY]
    with ServerProcess(*arguments) as process:
        yield process


@pytest.fixture(scope="session")
def calling_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A model that always says the same two calls, where it may call anything."""
    file = tmp_path_factory.mktemp("calling") / "sim.json5"
    file.write_text(json.dumps({"sim": {"text": "script", "script": CALLS}}))
    arguments = ["--backend", "sim", "-C", str(file), "--served-model-name", "sim", "--api-key", KEY]
    with ServerProcess(*arguments) as process:
        yield process


@pytest.fixture(scope="session")
def demo_server() -> Iterator[ServerProcess]:
    """The demo model, SmolLM2-135M."""
    with ServerProcess("--served-model-name", "demo", "--api-key", KEY) as process:
        yield process


@pytest.fixture
def sim(sim_server: ServerProcess) -> Iterator[Judge]:
    """The judge before the simulated engine."""
    with Judge(sim_server.base_url) as judge:
        yield judge


@pytest.fixture
def calling(calling_server: ServerProcess) -> Iterator[Judge]:
    """The judge before the model that calls."""
    with Judge(calling_server.base_url) as judge:
        yield judge


@pytest.fixture
def demo(demo_server: ServerProcess) -> Iterator[Judge]:
    """The judge before the demo model."""
    with Judge(demo_server.base_url) as judge:
        yield judge
