"""One server under attack for most of the suite, own servers for the rest, and a table at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.hostile.figures import record, table
from support.hostile.form import FULL
from support.hostile.probe import percentile
from support.hostile.watch import PROBE_TIMES_MS
from support.server import ServerProcess
from support.sim import StartServer, sim_arguments

MOST_P99_MS = 50.0
"""Of all health probes, on a machine that does nothing else: asserted in the full form only."""

ATTACKED: dict[str, Any] = {
    "runtime": {"max_batch_size": 16, "max_queue_size": 2048},
    "llguidance": {"log_level": 0},
    "server": {"max_body_bytes": 2_000_000, "log_requests": False},
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what belongs to the full form only."""
    if FULL:
        return
    left_out = [item for item in items if item.get_closest_marker("full_form") is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.get_closest_marker("full_form") is None]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of what the suite measured."""
    if rows := table():
        terminalreporter.section("hostile suite, full form" if FULL else "hostile suite, short form")
        for row in rows:
            terminalreporter.write_line(row)


@pytest.fixture(scope="session", autouse=True)
def health() -> Iterator[None]:
    """Looks at the times of all health probes together, at the end."""
    yield
    if PROBE_TIMES_MS:
        p99_ms = percentile(PROBE_TIMES_MS, 99)
        record("health, all of it", f"{len(PROBE_TIMES_MS)} probes, p99 {p99_ms:.1f} ms")
        assert not FULL or p99_ms < MOST_P99_MS


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server that most of the suite attacks."""
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("attacked"), ATTACKED)) as process:
        yield process


@pytest.fixture(scope="session")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that waits for its clients for half a second, and whose tokens take 5 ms."""
    config = {
        "runtime": {"max_batch_size": 16, "max_queue_size": 2048, "max_seq_len": 100_000},
        "sim": {"step_us": 5000, "prefill_chunk_tokens": 64},
        "server": {
            "header_timeout_s": 0.5,
            "write_timeout_s": 0.5,
            "ping_interval_s": 0.1,
            "max_body_bytes": 2_000_000,
            "log_requests": False,
        },
    }
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("impatient"), config)) as process:
        yield process


@pytest.fixture(scope="session")
def document(attacked: ServerProcess) -> dict[str, Any]:
    """Its OpenAPI document."""
    found: dict[str, Any] = json.loads(httpx.get(f"{attacked.base_url}/openapi.json", timeout=60).content)
    return found


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers of one's own; they are stopped after the test."""
    running: list[ServerProcess] = []

    def start(
        *arguments: str,
        wait: bool = True,
        prefix: Sequence[str] = (),
        env: dict[str, str] | None = None,
        **config: Any,
    ) -> ServerProcess:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        process = ServerProcess(
            *sim_arguments(folder, config), *arguments, wait=False, prefix=prefix, env=env
        )
        running.append(process)
        if wait:
            process.wait_ready()
        return process

    yield start
    for process in running:
        process.close()
