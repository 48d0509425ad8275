"""What the prefix cache holds, for the router of Dynamo's frontend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from llgtrt.engine import KvEvent


class Publisher(Protocol):
    """What is used of Dynamo's ``KvEventPublisher``."""

    def publish_batch(self, events: list[dict[str, Any]]) -> None:
        """Publishes events in their order."""

    def shutdown(self) -> None:
        """Ends it."""


class RouterEvents:
    """Hands events to Dynamo's publisher, and the number of blocks in use to its metrics.

    Args:
        publisher: where events go.
        block_size: tokens of a block.
        used_blocks: how many blocks running requests use.
        publish_used: takes that number whenever it has changed.
    """

    def __init__(
        self,
        publisher: Publisher,
        block_size: int,
        used_blocks: Callable[[], int],
        publish_used: Callable[[int], None],
    ) -> None:
        self._publisher = publisher
        self._block_size = block_size
        self._used_blocks = used_blocks
        self._publish_used = publish_used
        self._last_used: int | None = None
        self._known: dict[int, None] = {}
        """Blocks that the router knows of, a block after those it stands on."""

    def publish(self, events: list[KvEvent]) -> None:
        """Publishes events; Dynamo has none for an emptied cache, so every block is removed then."""
        written: list[dict[str, Any]] = []
        for event in events:
            if event.kind == "stored":
                written.append(
                    {
                        "type": "stored",
                        "token_ids": event.tokens,
                        "num_block_tokens": [self._block_size] * len(event.hashes),
                        "block_hashes": event.hashes,
                        "parent_hash": event.parent,
                    }
                )
                self._known.update(dict.fromkeys(event.hashes))
                continue
            hashes = event.hashes if event.kind == "removed" else [*reversed(self._known)]
            if hashes:
                written.append({"type": "removed", "block_hashes": hashes})
            for block in hashes:
                self._known.pop(block, None)
        if written:
            self._publisher.publish_batch(written)

    def turn(self) -> None:
        """Tells of the blocks in use if they have changed."""
        used = self._used_blocks()
        if used != self._last_used:
            self._last_used = used
            self._publish_used(used)

    def close(self) -> None:
        """Ends the publisher."""
        self._publisher.shutdown()


def blocks_in_use(usage: float, total: int) -> int:
    """So many of ``total`` blocks hold something where ``usage`` (0 to 1) of the cache is in use."""
    return min(math.ceil(usage * total - 1e-9), total)
