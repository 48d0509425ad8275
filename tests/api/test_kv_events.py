"""What the prefix cache holds, as a subscriber over ZMQ learns it from a running server.

The subscriber's types are those of vLLM's own example of a subscriber: what reads vLLM reads this server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import zmq

from support.api import COMPLETIONS, ok
from support.server import ServerProcess, free_port, run_llgtrt
from support.sim import StartServer

BLOCK = 8
BOS = 256
TOPIC = "kv@10.0.0.7:3000@sim"
RECEIVE_MS = 20_000


class KvEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    """As vLLM declares it."""


class BlockStored(KvEvent):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class BlockRemoved(KvEvent):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(KvEvent):
    pass


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class Indexer:
    """What a router knows of one server: which beginnings of prompts are cached."""

    def __init__(self) -> None:
        self.by_hash: dict[int, tuple[int, ...]] = {}
        self.removed = 0

    def read(self, payload: bytes) -> None:
        batch = msgspec.msgpack.decode(payload, type=EventBatch)
        assert abs(time.time() - batch.ts) < 600
        assert batch.data_parallel_rank == 0
        for event in batch.events:
            if isinstance(event, BlockStored):
                assert event.block_size == BLOCK
                assert len(event.token_ids) == BLOCK * len(event.block_hashes)
                before = () if event.parent_block_hash is None else self.by_hash[event.parent_block_hash]
                for index, block in enumerate(event.block_hashes):
                    assert block not in self.by_hash
                    before += tuple(event.token_ids[index * BLOCK : (index + 1) * BLOCK])
                    self.by_hash[block] = before
            elif isinstance(event, BlockRemoved):
                self.removed += len(event.block_hashes)
                for block in event.block_hashes:
                    del self.by_hash[block]
            else:
                self.by_hash.clear()

    def cached(self, prompt: str) -> int:
        """So many tokens of a prompt are found: the one that begins every text, and bytes."""
        tokens = (BOS, *prompt.encode())
        known = set(self.by_hash.values())
        lengths = range(0, len(tokens) + 1, BLOCK)
        return max(length for length in lengths if length == 0 or tokens[:length] in known)


class Sockets:
    """Sockets of a test, closed after it."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.made: list[zmq.Socket[Any]] = []

    def subscriber(self) -> zmq.Socket[Any]:
        """A socket that takes the server's topic."""
        made = self._make(zmq.SUB)
        made.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        return made

    def replay(self, endpoint: str, first: int) -> dict[int, bytes]:
        """The messages from a number on, as vLLM's clients ask for them."""
        asking = self._make(zmq.DEALER)
        asking.connect(endpoint)
        asking.send_multipart([b"", first.to_bytes(8, "big")])
        found: dict[int, bytes] = {}
        while True:
            _, number, payload = asking.recv_multipart()
            if number == (-1).to_bytes(8, "big", signed=True):
                assert payload == b""
                return found
            found[int.from_bytes(number, "big")] = payload

    def _make(self, kind: int) -> zmq.Socket[Any]:
        made: zmq.Socket[Any] = self.context.socket(kind)
        made.setsockopt(zmq.RCVTIMEO, RECEIVE_MS)
        self.made.append(made)
        return made


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.context.destroy(linger=0)


def complete(server: ServerProcess, prompt: str) -> tuple[int, str]:
    """Cached tokens and the answer of a completion."""
    body = {"prompt": prompt, "max_tokens": 8, "ignore_eos": True}
    with httpx.Client(base_url=server.base_url, timeout=60, verify=False) as http:
        answer = ok(http.post(COMPLETIONS, json=body))
    usage = answer["usage"]
    cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] == len(prompt) + 1
    return cached, answer["choices"][0]["text"]


def start(start_server: StartServer, **section: Any) -> ServerProcess:
    return start_server(
        sim={"prefix_cache_tokens": 400},
        kv_events={"topic": TOPIC, "block_size": BLOCK, **section},
    )


def test_a_subscriber_knows_what_is_cached(start_server: StartServer, sockets: Sockets) -> None:
    live, past = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    server = start(
        start_server,
        endpoint=live.replace("127.0.0.1", "*").replace("tcp", "zmq"),
        replay_endpoint=past.replace("127.0.0.1", "*"),
    )
    subscriber = sockets.subscriber()
    subscriber.connect(live)
    messages: dict[int, bytes] = {}

    def receive() -> None:
        topic, number, payload = subscriber.recv_multipart()
        assert topic == TOPIC.encode()
        messages[int.from_bytes(number, "big")] = payload

    # A subscription takes effect some time after it was made: until then messages pass it by.
    for attempt in range(100):
        complete(server, f"message {attempt:03} that may be missed")
        if subscriber.poll(100):
            break
    receive()
    messages = {**sockets.replay(past, 0), **messages}
    indexer = Indexer()
    read = 0
    found = 0
    beginnings = ["Once upon a time there was ", "It was a dark and stormy ", "In the beginning there "]
    for step in range(21):
        prompt = f"{beginnings[step % 7 % 3] * 3}{step:02}"
        believed = indexer.cached(prompt)
        cached, answer = complete(server, prompt)
        assert cached == believed, prompt
        found += cached
        whole = prompt + answer
        while indexer.cached(whole) < (len(whole) + 1) // BLOCK * BLOCK:
            while read not in messages:
                receive()
            indexer.read(messages[read])
            read += 1
    assert found > 300
    assert indexer.removed > 5
    # Whoever asks later learns the same.
    late = Indexer()
    for _, payload in sorted(sockets.replay(past, 0).items()):
        late.read(payload)
    assert len(late.by_hash) <= 400 // BLOCK
    assert {number: messages[number] for number in range(5, read)}.items() <= sockets.replay(past, 5).items()


def test_an_indexer_may_listen_itself(start_server: StartServer, sockets: Sockets) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    indexer = Indexer()
    subscriber = sockets.subscriber()
    subscriber.bind(endpoint)
    server = start(start_server, endpoint=endpoint)
    for attempt in range(100):
        complete(server, f"message {attempt:03} that may be missed")
        if subscriber.poll(100):
            break
    _, number, payload = subscriber.recv_multipart()
    if int.from_bytes(number, "big") == 0:
        indexer.read(payload)
        assert indexer.by_hash


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kv-events", "http://*:5557"), "must begin with zmq://, tcp:// or ipc://"),
        (
            ("--kv-events", "ipc:///no/such/folder/socket"),
            "kv_events.endpoint: ipc:///no/such/folder/socket: ",
        ),
        (("--kv-events", "zmq://*:*"), "sim.prefix_cache_tokens is 0"),
    ],
)
def test_what_cannot_be_published_is_said_at_the_start(arguments: tuple[str, ...], message: str) -> None:
    ended = run_llgtrt("serve", "--backend", "sim", "--port", "0", *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
