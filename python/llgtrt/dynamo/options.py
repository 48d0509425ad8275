"""What a worker is told beside what a server is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DynamoOptions:
    """Where the worker registers, and what the frontend is told of the model.

    Attributes:
        namespace, component, endpoint: the endpoint's name, ``namespace.component.endpoint``.
        discovery: where workers are found: ``etcd``, ``kubernetes``, ``file`` or ``mem``.
        request_plane: how requests come: ``tcp`` or ``nats``.
        event_plane: how events go: ``zmq`` or ``nats``; None: as discovery has it.
        model_folder: a folder with the model's tokenizer and template; None: it is written.
        tool_call_parser, reasoning_parser: names of the frontend's parsers.
        block_size: tokens of a block, by which routers compare prompts.
        kv_events: whether routers are told what the prefix cache holds.
        grace_s: how long requests that are on their way are accepted after a signal, in seconds.
    """

    namespace: str
    component: str
    endpoint: str
    discovery: str
    request_plane: str
    event_plane: str | None
    model_folder: Path | None
    tool_call_parser: str | None
    reasoning_parser: str | None
    block_size: int
    kv_events: bool
    grace_s: float

    @property
    def path(self) -> str:
        """The endpoint's whole name."""
        return f"{self.namespace}.{self.component}.{self.endpoint}"
