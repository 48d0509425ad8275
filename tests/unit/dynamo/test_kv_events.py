"""What Dynamo's publisher is told of the cache, and what of its load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llgtrt.dynamo.kv_events import RouterEvents, blocks_in_use


@dataclass
class Event:
    """As the core gives it."""

    kind: str
    hashes: list[int] = field(default_factory=list)
    parent: int | None = None
    tokens: list[int] = field(default_factory=list)


class Publisher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ended = False

    def publish_batch(self, events: list[dict[str, Any]]) -> None:
        self.events += events

    def shutdown(self) -> None:
        self.ended = True


def events_of(*events: Event) -> tuple[Publisher, RouterEvents]:
    publisher = Publisher()
    sink = RouterEvents(publisher, 2, lambda: 0, lambda _: None)
    sink.publish(list(events))  # type: ignore[arg-type]
    return publisher, sink


def test_blocks_come_with_their_tokens_and_go_by_name() -> None:
    publisher, sink = events_of(Event("stored", [7, 8], None, [1, 2, 3, 4]), Event("removed", [8]))
    assert publisher.events == [
        {
            "type": "stored",
            "token_ids": [1, 2, 3, 4],
            "num_block_tokens": [2, 2],
            "block_hashes": [7, 8],
            "parent_hash": None,
        },
        {"type": "removed", "block_hashes": [8]},
    ]
    sink.close()
    assert publisher.ended


def test_an_emptied_cache_is_every_block_removed_and_what_is_held_is_told_anew() -> None:
    publisher, sink = events_of(
        Event("stored", [7, 8], None, [1, 2, 3, 4]), Event("removed", [8]), Event("stored", [9], 7, [5, 6])
    )
    publisher.events.clear()
    sink.publish([Event("cleared"), Event("stored", [7], None, [1, 2])])  # type: ignore[list-item]
    assert publisher.events[0] == {"type": "removed", "block_hashes": [9, 7]}
    assert publisher.events[1]["block_hashes"] == [7]
    publisher.events.clear()
    sink.publish([Event("cleared"), Event("cleared")])  # type: ignore[list-item]
    assert publisher.events == [{"type": "removed", "block_hashes": [7]}]


def test_the_load_is_told_when_it_changes() -> None:
    loads = iter([0, 0, 3, 3, 1])
    told: list[int] = []
    sink = RouterEvents(Publisher(), 2, lambda: next(loads), told.append)
    for _ in range(5):
        sink.turn()
    assert told == [0, 3, 1]


def test_a_begun_block_is_in_use() -> None:
    assert blocks_in_use(0.0, 64) == 0
    assert blocks_in_use(1 / 1024, 64) == 1
    assert blocks_in_use(16 / 64, 64) == 16
    assert blocks_in_use(1.0, 64) == 64
