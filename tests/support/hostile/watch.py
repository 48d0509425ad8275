"""Everything that must hold while a server is attacked, in one context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.hostile.census import Census, baseline, wait_for_nothing_left
from support.hostile.figures import record
from support.hostile.neighbours import Neighbours
from support.hostile.probe import HealthProbe
from support.server import ServerProcess, wait_until

PROBE_TIMES_MS: list[float] = []
"""Of all probes so far."""


@contextmanager
def watched(server: ServerProcess, case: str) -> Iterator[Census]:
    """Probes the server's health from another process and compares its neighbours' answers meanwhile.

    At the end every probe must have been answered, every neighbour's answer be that of a quiet server, and
    the server hold no more descriptors, threads, sequences, blocks, matchers and compile slots than before.
    """
    wait_until(server.is_idle, "the server is idle")
    neighbours = Neighbours(server.base_url)
    wait_until(server.is_idle, "the server is idle")
    before = baseline(server)
    with HealthProbe(server.port) as probe, neighbours:
        yield before
    assert server.process.poll() is None, server.output
    record(f"{case}: health", str(probe.report))
    record(f"{case}: neighbours", f"{neighbours.answers} answers, {len(neighbours.different)} different")
    PROBE_TIMES_MS.extend(probe.report.times_ms)
    probe.check()
    neighbours.check()
    wait_for_nothing_left(server, before)
    assert "Traceback" not in server.output
