"""Responses kept for later requests: bounded in number and in bytes, the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from llgtrt.patient_json import parse_json


def stored_json(text: bytes) -> Any:
    """What was stored as JSON. May take long."""
    try:
        return parse_json(text)
    except ValueError:
        # More values than a request may hold: log-probabilities of a long answer.
        return from_json(text)


ENTRY_BYTES = 1024
"""What an entry takes beside its texts, about."""
ID_BYTES = 256
"""What a name in the index takes, about."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response.

    Attributes:
        response: the object, as JSON.
        items: the items that the model was given, as a JSON array.
        output_ids: the ids of the items of its output.
    """

    response: bytes
    items: bytes
    output_ids: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """What it takes in the store, in bytes."""
        return len(self.response) + len(self.items) + ENTRY_BYTES + ID_BYTES * len(self.output_ids)


class ResponseStore:
    """Safe to use on several threads.

    Args:
        most: how many responses; 0 keeps none.
        most_bytes: how many bytes all of them take.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, StoredResponse] = OrderedDict()
        self._outputs: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def enabled(self) -> bool:
        """Whether anything is kept."""
        return self._most > 0

    @property
    def count(self) -> int:
        """Responses in the store."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes in the store."""
        return self._bytes

    def put(self, name: str, entry: StoredResponse) -> bool:
        """Keeps a response in place of one of the same name, unless it is larger than the whole store."""
        with self._lock:
            self._remove(name)
            if not self.enabled or entry.size > self._most_bytes:
                return False
            self._entries[name] = entry
            self._bytes += entry.size
            for item in entry.output_ids:
                self._outputs[item] = name
            while len(self._entries) > self._most or self._bytes > self._most_bytes:
                self._remove(next(iter(self._entries)))
            return True

    def replace(self, name: str, entry: StoredResponse) -> bool:
        """As :meth:`put`, but only where one of that name is still here."""
        with self._lock:
            if name not in self._entries:
                return False
        return self.put(name, entry)

    def get(self, name: str) -> StoredResponse | None:
        """A response, which counts as used."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is not None:
                self._entries.move_to_end(name)
            return entry

    def delete(self, name: str) -> bool:
        """Whether there was one."""
        with self._lock:
            return self._remove(name)

    def item(self, name: str) -> dict[str, Any] | None:
        """An item of the output of a stored response."""
        with self._lock:
            entry = self._entries.get(self._outputs.get(name, ""))
        if entry is None:
            return None
        output: list[dict[str, Any]] = stored_json(entry.response)["output"]
        return next((item for item in output if item["id"] == name), None)

    def _remove(self, name: str) -> bool:
        entry = self._entries.pop(name, None)
        if entry is None:
            return False
        self._bytes -= entry.size
        for item in entry.output_ids:
            self._outputs.pop(item, None)
        return True
