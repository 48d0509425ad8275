"""An audit log, one JSON object per line: `llgtrt ENGINE --hooks examples/hooks/audit_log.py:AuditLog`.

py.hooks_arguments: {"file": "audit.jsonl"}. Who asked for what, and how it ended. Of prompts and answers
there are only length and SHA-256, enough to prove later that a text is the one that was sent.
"""

import hashlib
import json
import threading
import time
from typing import Any

from llgtrt.hooks import HookEnd, HookOutput, HookRequest


class AuditLog:
    """Appends to a file. A line is written before the model begins, and one at the end."""

    def __init__(self, arguments: dict[str, Any] | None) -> None:
        self._lock = threading.Lock()
        self._file = open((arguments or {}).get("file", "audit.jsonl"), "a", encoding="utf-8")  # noqa: SIM115

    def on_request(self, request: HookRequest) -> None:
        """The question."""
        asked = json.dumps(request.messages if request.kind == "chat" else request.prompt, sort_keys=True)
        request.state["answer"] = hashlib.sha256()
        self._write(
            "request",
            request,
            client=request.client,
            key=request.key,
            path=request.path,
            model=request.model,
            prompt_chars=len(asked),
            prompt_sha256=hashlib.sha256(asked.encode()).hexdigest(),
        )

    def on_output(self, request: HookRequest, output: HookOutput) -> None:
        """A piece of the answer: it is only looked at."""
        request.state["answer"].update(output.text.encode(errors="surrogatepass"))

    def on_end(self, request: HookRequest, end: HookEnd) -> None:
        """The end."""
        self._write(
            "end",
            request,
            outcome=end.outcome,
            error=end.error,
            completion_tokens=end.completion_tokens,
            answer_sha256=request.state["answer"].hexdigest(),
        )

    def _write(self, event: str, request: HookRequest, **members: Any) -> None:
        line = json.dumps({"time": time.time(), "event": event, "request_id": request.id, **members})
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()
