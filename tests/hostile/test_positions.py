"""Every hostile value in every place of every request body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.hostile.barrage import Shot, barrage
from support.hostile.figures import record
from support.hostile.form import by_form
from support.hostile.positions import Position, positions
from support.hostile.values import VALUES
from support.hostile.watch import watched
from support.server import ServerProcess


def shots(places: list[Position]) -> Iterator[Shot]:
    """In the short form each place meets every 15th value, and each value every 15th place."""
    every = by_form(15, 1)
    for row, place in enumerate(places):
        for column, (name, value) in enumerate(VALUES.items()):
            if (row + column) % every == 0:
                yield f"{place} = {name}", place.path, place.filled(value)


@pytest.mark.timeout(3600)
def test_every_value_in_every_place(attacked: ServerProcess, document: dict[str, Any]) -> None:
    places = positions(document)
    assert {place.path for place in places} >= {"/v1/chat/completions", "/v1/completions"}
    assert len(places) > 150
    with watched(attacked, "values in places"):
        count, faults = barrage(attacked, shots(places))
    record("values in places", f"{count} requests, {len(faults)} answered wrongly")
    assert not faults, "\n".join(faults)
