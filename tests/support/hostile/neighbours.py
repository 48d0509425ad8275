"""Ordinary clients beside the hostile ones: what they are told must not depend on who else is there."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import httpx

from support.api import CHAT, COMPLETIONS, RECEIPT_OF_ITS_TIME, chat, chunks_of, finish_reasons, joined
from support.hostile.probe import TIMEOUT_S

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}},
    "required": ["name", "tags"],
}

PAUSE_S = 0.02
"""Between two rounds."""

Ask = tuple[str, dict[str, Any]]

ASKS: list[Ask] = [
    (CHAT, chat("one", seed=1, max_tokens=24, n=2)),
    (CHAT, chat("two", seed=2, max_tokens=24, stream=True)),
    (CHAT, chat("three", seed=3, max_tokens=60, guided_json=SCHEMA)),
    (CHAT, chat("four", seed=4, max_tokens=20, stream=True, guided_regex="[a-z]{3,12}")),
    (COMPLETIONS, {"prompt": "five", "seed": 5, "max_tokens": 12, "logprobs": 2, "echo": True}),
]


class Neighbours:
    """Asks the same again and again while the context is open, and remembers answers that differ."""

    def __init__(self, base_url: str, quiet: Sequence[str] = (), asks: Sequence[Ask] = tuple(ASKS)) -> None:
        """``quiet`` are the answers of a quiet server; it is asked for them now if there are none."""
        self.answers = 0
        self.different: list[str] = []
        self._asks = list(asks)
        self._client = httpx.Client(base_url=base_url, timeout=6 * TIMEOUT_S)
        self.quiet = list(quiet) or [self._answer(ask) for ask in self._asks]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Neighbours:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(20 * TIMEOUT_S)
        assert not self._thread.is_alive(), "a neighbour waits for its answer"
        self._client.close()

    def check(self) -> None:
        """Fails if an answer differed, or there was none."""
        assert not self.different, self.different[:3]
        assert self.answers >= len(self._asks)

    def _run(self) -> None:
        while True:
            for ask, quiet in zip(self._asks, self.quiet, strict=True):
                try:
                    answer = self._answer(ask)
                except (httpx.HTTPError, AssertionError) as error:
                    answer = f"{type(error).__name__}: {error}"
                self.answers += 1
                if answer != quiet:
                    self.different.append(f"{ask}: {answer[:500]} instead of {quiet[:500]}")
            if self._stop.wait(PAUSE_S):
                return

    def _answer(self, ask: Ask) -> str:
        """The answer without what may differ: ids, times, how a stream was cut into pieces."""
        path, body = ask
        response = self._client.post(path, json=body)
        assert response.status_code == 200, response.text
        if body.get("stream"):
            chunks = chunks_of(response.text)
            return json.dumps([joined(chunks), finish_reasons(chunks)])
        answer = response.json()
        for choice in answer["choices"]:
            choice.get("constraint", {}).update(dict.fromkeys(RECEIPT_OF_ITS_TIME))
        return json.dumps([answer["choices"], answer["usage"]["completion_tokens"]])
