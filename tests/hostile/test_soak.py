"""``make soak``: everything at once, for as long as asked; what a server holds must not grow."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.api import CHAT, chat
from support.hostile.barrage import Shot, barrage
from support.hostile.figures import record
from support.hostile.json_texts import NOT_JSON
from support.hostile.naughty import NAUGHTY
from support.hostile.neighbours import Neighbours
from support.hostile.positions import positions
from support.hostile.probe import HealthProbe
from support.hostile.schemas import SCHEMAS
from support.hostile.soak import check_memory, growth, soak
from support.hostile.values import VALUES
from support.hostile.wire import open_request, post
from support.server import ServerProcess
from support.sim import sim_arguments

MINUTES = float(os.environ.get("LLGTRT_SOAK_MINUTES", "2"))
SHOTS_PER_ROUND = 400
CONFIG: dict[str, Any] = {
    "runtime": {"max_batch_size": 16, "max_queue_size": 2048},
    # Caches that are full after some rounds: what fills them is no leak.
    "llguidance": {"cache_megabytes": 16, "log_level": 0},
    "server": {"max_body_bytes": 2_000_000, "stored_response_bytes": 4_000_000, "log_requests": False},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(*sim_arguments(tmp_path, CONFIG)) as process:
        yield process


class MixedLoad:
    """A round of everything: ordinary requests, hostile ones, dear schemas, clients that leave."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._quiet: list[str] = []
        self._shots = itertools.cycle(self._all_shots())
        self._schemas = itertools.cycle(SCHEMAS.items())

    def _all_shots(self) -> list[Shot]:
        places = positions(self._server.get("/openapi.json").json())
        values = itertools.cycle(VALUES.items())
        shots = []
        for place, (name, value) in zip(places * len(VALUES), values, strict=False):
            shots.append((f"{place} = {name}", place.path, place.filled(value)))
        shots += [(f"{text[:40]!r}", CHAT, text) for text in NOT_JSON]
        return shots

    def __call__(self, number: int) -> None:
        """One round. Fails if an answer is wrong, or a neighbour's differs from its first."""
        server = self._server
        with Neighbours(server.base_url, self._quiet) as neighbours, ThreadPoolExecutor(4) as pool:
            self._quiet = neighbours.quiet
            shots = list(itertools.islice(self._shots, SHOTS_PER_ROUND))
            _, faults = barrage(server, shots)
            assert not faults, faults
            bodies = [
                chat(text, max_tokens=20, n=2, stream=True, stop=["\n"]) for text in NAUGHTY if text.strip()
            ]
            for name, schema in itertools.islice(self._schemas, 4):
                bodies.append(chat(max_tokens=20, guided_json={**schema, "$comment": f"{name} {number}"}))
            for response in pool.map(lambda body: post(server, CHAT, body), bodies):
                assert response.status_code in (200, 400, 422), response.text
            for at in range(20):
                body = chat(stream=at % 2 == 0, ignore_eos=True, max_tokens=3000, n=1 + at % 3)
                with open_request(server, CHAT, body) as client:
                    if at % 4 == 0:
                        client.recv(100)
        neighbours.check()


@pytest.mark.full_form
@pytest.mark.timeout(0)
def test_nothing_grows(server: ServerProcess) -> None:
    with HealthProbe(server.port) as probe:
        samples = soak(server, MixedLoad(server), MINUTES * 60)
    assert "Traceback" not in server.output
    megabytes = [sample >> 20 for sample in samples]
    record(
        f"soak of {MINUTES:g} minutes",
        f"{len(samples)} rounds, memory {growth(samples):+.1%} after the warm-up "
        f"({megabytes[0]} MB, {megabytes[len(megabytes) // 2]} MB, {megabytes[-1]} MB); {probe.report}",
    )
    probe.check()
    check_memory(samples, MINUTES * 60)
