"""Answers at their limit of tokens, over the simulated engine: it picks any token that the mask leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import limits
from support.server import ServerProcess
from support.sim import sim_arguments


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    config = {"server": {"log_requests": False}, "runtime": {"max_batch_size": limits.WORKERS}}
    with ServerProcess(*sim_arguments(tmp_path, config)) as process:
        yield process


@pytest.mark.timeout(1800)
def test_every_answer_is_whole_from_the_shortest_up(server: ServerProcess) -> None:
    tally = limits.run(server, every=1 if limits.FULL else 8)
    print(f"simulated engine, {tally}")
    tally.check()
    assert tally.pairs > (3000 if limits.FULL else 300)


def test_the_judge_divides_exactly() -> None:
    judge = limits.validator_of({"type": "number", "multipleOf": 0.01})
    assert [judge.is_valid(number) for number in (1.14, 1e300, 7, 1.145, float("inf"))] == [True] * 3 + [
        False
    ] * 2
