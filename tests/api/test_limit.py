"""Answers at their limit of tokens, over the simulated engine: it picks any token that the mask leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


_SUBTAG = "(((([A-Za-z]{2,3}(-([A-Za-z]{3}(-[A-Za-z]{3}){0,2}))?)|[A-Za-z]{4}|[A-Za-z]{5,8})(-([A-Za-z]{4}))?\
(-([A-Za-z]{2}|[0-9]{3}))?(-([A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*(-([0-9A-WY-Za-wy-z](-[A-Za-z0-9]{2,8})+))*\
(-(x(-[A-Za-z0-9]{1,8})+))?)|(x(-[A-Za-z0-9]{1,8})+))"
_TRANSLATED = {f"^({name}_{_SUBTAG})$": {"type": ["string", "null"]} for name in ("title", "description")}
TENDER = {
    "type": "object",
    "properties": {
        "awards": {"items": {"patternProperties": _TRANSLATED}},
        "contracts": {
            "type": "array",
            "items": {"type": "object", "required": ["awardID"], "patternProperties": _TRANSLATED},
        },
    },
}
"""Part of a schema of open contracts: its check takes tokens back where the end of the answer begins."""

MULTIPLES = {
    "type": "number",
    "minimum": 1,
    "allOf": [
        {"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}, {"multipleOf": 15}]},
        {"oneOf": [{"allOf": [{"not": {"multipleOf": 5}}, {"not": {"multipleOf": 3}}]}, {"multipleOf": 8}]},
        {"oneOf": [{"not": {"multipleOf": 8}}, {"multipleOf": 11}]},
    ],
}
"""After some digits no search finds which are missing."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("schema", [TENDER, MULTIPLES], ids=["tender", "multiples"])
def test_what_a_check_takes_back_near_the_limit_comes_to_an_end(
    server: ServerProcess, schema: dict[str, Any]
) -> None:
    with limits.Client(server) as client:
        for limit in range(60, 130):
            status, body = client.ask(schema, limit, seed=limit)
            assert status in (200, 422), body


def test_the_judge_divides_exactly() -> None:
    judge = limits.validator_of({"type": "number", "multipleOf": 0.01})
    assert [judge.is_valid(number) for number in (1.14, 1e300, 7, 1.145, float("inf"))] == [True] * 3 + [
        False
    ] * 2
