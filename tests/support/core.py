"""The native module over the sim engine, and the little that asyncio would do for it."""

from __future__ import annotations

import json
import select
import time
from typing import Any

from llgtrt import _native
from llgtrt.config import Config
from llgtrt.config.native import TOKENIZER_OPTIONS


def engine_config(**sections: dict[str, Any]) -> str:
    """The JSON of a sim engine; ``sections`` override single options."""
    config = Config.model_validate(sections)
    tokenizer = config.tokenizer.model_dump(include=set(TOKENIZER_OPTIONS))
    return json.dumps(
        {
            "backend": "sim",
            "model_path": None,
            "tokenizer_path": None,
            "runtime": config.runtime.model_dump(),
            "tokenizer": tokenizer,
            "llguidance": config.llguidance.model_dump(),
            "llamacpp": config.llamacpp.model_dump(),
            "sim": config.sim.model_dump(),
        }
    )


class Core:
    """A native engine and the little that asyncio would do: wait for its descriptor, drain."""

    def __init__(self, config: str) -> None:
        self.engine = _native.Engine(config)

    def submit(self, **fields: Any) -> _native.RequestHandle:
        request = _native.GenerateRequest(**{"prompts": ["hello"], "output": "deltas", **fields})
        return self.engine.submit(
            request, self.engine.reserve(len(request_prompts(fields)) * fields.get("n", 1))
        )

    def next(self, handle: _native.RequestHandle, timeout_s: float = 20) -> tuple[_native.Payload, bool]:
        """The next payload of ``handle``; other requests' output is not expected meanwhile."""
        ready = handle.take()
        if ready is not None:
            return ready
        deadline = time.monotonic() + timeout_s
        while True:
            self.wait_readable(deadline)
            for request_id, payload, last in self.engine.drain():
                if request_id == handle.id and not isinstance(payload, _native.Embeddings):
                    return payload, last

    def wait_readable(self, deadline: float) -> None:
        readable, _, _ = select.select([self.engine.event_fd], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, "the core signalled nothing before the deadline"

    def finish(self, handle: _native.RequestHandle) -> list[_native.Delta]:
        """Every delta of ``handle`` up to the last."""
        deltas = []
        last = False
        while not last:
            payload, last = self.next(handle)
            assert isinstance(payload, _native.Delta)
            deltas.append(payload)
        return deltas


def request_prompts(fields: dict[str, Any]) -> list[Any]:
    prompts: list[Any] = fields.get("prompts", ["hello"])
    return prompts
