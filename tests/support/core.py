"""The native module over the sim engine, and the little that asyncio would do for it."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Sequence
from typing import Any

from llgtrt import _native
from llgtrt.config import Config
from llgtrt.config.native import TOKENIZER_OPTIONS
from llgtrt.engine import generate_request


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


REQUEST_FIELDS: dict[str, list[str]] = json.loads(_native.request_fields())
"""The fields of each object of a request, by its path."""

PLACES = ("extras", "request.options.sampling", "request.options", "request.sampling", "request")
"""Objects into which :func:`native_request` puts fields; but for ``sampling`` their names are different."""


def native_request(
    prompts: Sequence[str | list[int]] = ("hello",), grammar: _native.GrammarSpec | None = None, **fields: Any
) -> _native.GenerateRequest:
    """A request with each field in the object that has one of its name, unknown ones in the outermost."""
    objects: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        path = next((path for path in PLACES if name in REQUEST_FIELDS[path]), "request")
        objects.setdefault(path, {})[name] = value
    options = objects.get("request.options", {})
    if sampling := objects.get("request.options.sampling"):
        options["sampling"] = sampling
    request = objects.get("request", {})
    for name, value in (("sampling", objects.get("request.sampling")), ("options", options)):
        if value:
            request[name] = value
    return generate_request(request, list(prompts), grammar=grammar, extras=objects.get("extras"))


class Core:
    """A native engine and the little that asyncio would do: wait for its descriptor, drain."""

    def __init__(self, config: str) -> None:
        self.engine = _native.Engine(config)

    def submit(self, **fields: Any) -> _native.RequestHandle:
        request = native_request(**{"prompts": ["hello"], "output": "deltas", **fields})
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
                if request_id == handle.id and not isinstance(payload, (_native.Embeddings, _native.Unsent)):
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
