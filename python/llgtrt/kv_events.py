"""Publishes what the prefix cache holds over ZMQ, in vLLM's form, which the indexers of routers read.

A message has three frames: the topic, its number (8 bytes, big-endian, from 0), and an ``EventBatch`` in
msgpack. Needs the extra ``kv-events``.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from llgtrt.config import ConfigError, KvEventsConfig

try:
    import msgspec
    import zmq
except ModuleNotFoundError as error:
    raise ConfigError(f"kv_events needs `pip install llgtrt[kv-events]`: {error}") from error

if TYPE_CHECKING:
    from llgtrt.engine import KvEvent

END = (-1).to_bytes(8, "big", signed=True)
"""Number of the message after the last replayed one."""
MEDIUM = "GPU"
"""The tier that indexers count in full: nothing of it has to be copied. Also of llama.cpp on a CPU."""
MOST_UNSENT = 100_000
"""Messages per subscriber; more are lost to it, and it sees that by the numbers."""


class _Event(msgspec.Struct, array_like=True, tag=True, gc=False):
    """An array that begins with the kind of event."""


class BlockStored(_Event):
    """Blocks, each behind the one before."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class BlockRemoved(_Event):
    """Blocks that are gone."""

    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(_Event):
    """Nothing is held any more of what was told before."""


class EventBatch(msgspec.Struct, array_like=True, gc=False):
    """What happened at one time, in its order."""

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None


def event_of(event: KvEvent, block_size: int) -> BlockStored | BlockRemoved | AllBlocksCleared:
    """An event of the core's in vLLM's form."""
    if event.kind == "stored":
        return BlockStored(event.hashes, event.parent, event.tokens, block_size, None, MEDIUM, None)
    if event.kind == "removed":
        return BlockRemoved(event.hashes, MEDIUM)
    return AllBlocksCleared()


class ZmqPublisher:
    """A sink of KV events. Made on one thread, then used on another.

    Raises:
        ConfigError: an endpoint cannot be used.
    """

    def __init__(self, section: KvEventsConfig) -> None:
        self._block_size = section.block_size
        self._topic = section.topic.encode()
        self._context: zmq.Context[Any] = zmq.Context()
        self._encoder = msgspec.msgpack.Encoder()
        self._next = 0
        self._sent: deque[tuple[bytes, bytes]] = deque(maxlen=section.replay_batches)
        self._replay = None
        try:
            if section.endpoint is None:
                raise ConfigError("kv_events.endpoint is null")
            self._publisher = self._socket(zmq.PUB, "endpoint", section.endpoint)
            if section.replay_endpoint is not None:
                self._replay = self._socket(zmq.ROUTER, "replay_endpoint", section.replay_endpoint)
        except ConfigError:
            self._context.destroy(linger=0)
            raise

    def _socket(self, kind: int, option: str, endpoint: str) -> zmq.Socket[Any]:
        if endpoint.startswith("zmq://"):
            endpoint = "tcp://" + endpoint.removeprefix("zmq://")
        if not endpoint.startswith(("tcp://", "ipc://")):
            raise ConfigError(f"kv_events.{option} must begin with zmq://, tcp:// or ipc://")
        socket: zmq.Socket[Any] = self._context.socket(kind)
        socket.set_hwm(MOST_UNSENT)
        # At the end the last messages are not waited for.
        socket.setsockopt(zmq.LINGER, 0)
        try:
            # As vLLM takes it: an address of everything or of a file is one to listen on.
            if "*" in endpoint or "::" in endpoint or endpoint.startswith("ipc://"):
                socket.bind(endpoint)
            else:
                socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(f"kv_events.{option}: {endpoint}: {error}") from error
        return socket

    def publish(self, events: list[KvEvent]) -> None:
        """Sends events as one message."""
        batch = EventBatch(time.time(), [event_of(event, self._block_size) for event in events], 0)
        number, payload = self._next.to_bytes(8, "big"), self._encoder.encode(batch)
        self._next += 1
        if self._replay is not None:
            self._sent.append((number, payload))
        # A PUB socket never blocks.
        self._publisher.send_multipart((self._topic, number, payload))

    def turn(self) -> None:
        """Answers subscribers that ask for what they missed: the messages from a number on, and an end."""
        if self._replay is None:
            return
        while self._replay.poll(0):
            frames = self._replay.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            client, first = frames[0], frames[2]
            for number, payload in self._sent:
                if number >= first:
                    self._replay.send_multipart((client, b"", number, payload))
            self._replay.send_multipart((client, b"", END, b""))

    def close(self) -> None:
        """Closes the sockets."""
        self._context.destroy(linger=0)
