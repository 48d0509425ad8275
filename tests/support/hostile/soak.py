"""Does a server hold more and more: rounds of load, a sample in the quiet after each, and a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from support.hostile.census import Census, baseline, resident_bytes, wait_for_nothing_left
from support.server import ServerProcess, wait_until

LONG_SOAK_S = 1800.0
MOST_GROWTH = 0.02
"""Of memory after the warm-up of a long soak."""
MOST_GROWTH_OF_SHORT = 0.5
"""Of a shorter one, in which caches still fill and the allocator's slack weighs more."""
WARM_UP = 0.4
"""Part of the rounds that fill caches and pools, and do not count."""
LEAST_ROUNDS = 10


def soak(
    server: ServerProcess, load: Callable[[int], None], duration_s: float, settle_s: float = 30.0
) -> list[int]:
    """Runs rounds of load for so long, and gives the memory in bytes after each.

    Raises:
        AssertionError: after a round the server held descriptors, threads or sequences that it did not hold
            after the first.
    """
    deadline = time.monotonic() + duration_s
    samples: list[int] = []
    first: Census | None = None
    while time.monotonic() < deadline or len(samples) < LEAST_ROUNDS:
        load(len(samples))
        wait_until(server.is_idle, "the server is idle", settle_s)
        if first is None:
            first = baseline(server)
        wait_for_nothing_left(server, first, settle_s)
        samples.append(resident_bytes(server.process.pid))
    return samples


def growth(samples: Sequence[int]) -> float:
    """By which part memory grew after the warm-up: from its first third to its last, by their medians."""
    counted = samples[int(len(samples) * WARM_UP) :]
    third = len(counted) // 3
    assert third > 0, "too few rounds for a verdict"
    return median(counted[-third:]) / median(counted[:third]) - 1


def check_memory(samples: Sequence[int], duration_s: float = LONG_SOAK_S) -> None:
    """Fails if memory grew by more than is allowed in a soak of that length."""
    grown = growth(samples)
    most = MOST_GROWTH if duration_s >= LONG_SOAK_S else MOST_GROWTH_OF_SHORT
    megabytes = [sample >> 20 for sample in samples]
    assert grown <= most, f"memory grew by {grown:.1%} after the warm-up: {megabytes} MB"
