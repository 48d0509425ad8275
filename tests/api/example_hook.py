"""A hook for tests: what it does goes by the request's headers."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from llgtrt.hooks import HookEnd, HookOutput, HookRequest, Refusal


class Hook:
    def __init__(self, arguments: dict[str, Any]) -> None:
        self._file = Path(arguments["file"])
        self._lock = threading.Lock()

    async def on_request(self, request: HookRequest) -> Any:
        do = request.headers.get("x-do")
        if do == "refuse":
            raise Refusal("Not you.", 402, code="pay", headers={"x-price": "1"})
        if do == "raise":
            raise RuntimeError("internals")
        if do == "exit":
            raise SystemExit(3)
        if do == "hang":
            threading.Event().wait(30)
        if do == "rewrite":
            if request.messages is not None:
                request.messages = [{"role": "user", "content": "rewritten"}]
            else:
                request.prompt = "rewritten"
            request.max_tokens = 3
        if do == "nonsense":
            request.max_tokens = "many"  # type: ignore[assignment]
        return None

    def on_output(self, request: HookRequest, output: HookOutput) -> Any:
        do = request.headers.get("x-do")
        if do == "upper":
            return output.text.upper()
        if do == "refuse output":
            raise Refusal("That is no answer.", 451, code="filtered")
        if do == "output fails":
            raise RuntimeError("internals")
        if do == "output is no text":
            return 5
        return None

    def on_end(self, request: HookRequest, end: HookEnd) -> None:
        if request.headers.get("x-do") == "end fails":
            raise RuntimeError("internals of the end")
        line = {
            "id": request.id,
            "kind": request.kind,
            "path": request.path,
            "key": request.key,
            "model": request.model,
            "user": request.fields.get("user"),
            "stream": request.stream,
            "constrained": request.constrained,
            "outcome": end.outcome,
            "reasons": list(end.finish_reasons),
            "tokens": [end.prompt_tokens, end.cached_tokens, end.completion_tokens],
            "error": end.error,
        }
        with self._lock, self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
