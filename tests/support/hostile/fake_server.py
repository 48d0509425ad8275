"""A stand-in for a server that does the one thing wrong that the suite is to notice.

``python fake_server.py FAULT --host HOST --port PORT``, with one of ``FAULTS``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = (
    "none",
    "memory",
    "descriptors",
    "threads",
    "matchers",
    "stall",
    "slow",
    "neighbours",
    "failure",
)
METRICS = (
    "llgtrt_num_requests_running",
    "llgtrt_num_requests_waiting",
    "llgtrt_kv_cache_usage_perc",
    "llgtrt_grammar_compiles_overrun",
)
PROBES = "fake_probes"
"""Metric: health probes since the first request."""
LEAK_BYTES = 1 << 20
SLOW_S = 0.2

_fault = "none"
_posts = 0
_probes = 0
_kept: list[Any] = []
_never = threading.Event()


def _leak() -> None:
    if _fault == "memory":
        _kept.append(bytearray(os.urandom(LEAK_BYTES)))
    elif _fault == "descriptors":
        _kept.append(os.open("/dev/null", os.O_RDONLY))
    elif _fault == "threads":
        thread = threading.Thread(target=_never.wait, daemon=True)
        thread.start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Probes and metrics."""
        global _probes
        if self.path == "/metrics":
            matchers = _posts if _fault == "matchers" else 0
            lines = [
                *(f"{name} 0" for name in METRICS),
                f"llgtrt_matchers {matchers}",
                f"{PROBES} {_probes}",
                "",
            ]
            self._answer("\n".join(lines).encode(), "text/plain")
            return
        if self.path.startswith("/v1/health/") and _posts:
            _probes += 1
            if _fault == "stall":
                _never.wait()
            if _fault == "slow":
                _never.wait(SLOW_S)
        self._answer(b"{}", "application/json", 500 if _fault == "failure" and _posts else 200)

    def do_POST(self) -> None:
        """A request for an answer."""
        global _posts
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _posts += 1
        _leak()
        number = _posts if _fault == "neighbours" else 0
        choice = {"index": 0, "text": f"an answer {number}", "finish_reason": "stop"}
        if body.get("stream"):
            event = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
            self._answer(event.encode(), "text/event-stream")
        else:
            answer = {"choices": [choice], "usage": {"completion_tokens": 3}}
            self._answer(json.dumps(answer).encode(), "application/json")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""

    def _answer(self, body: bytes, content_type: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(arguments: list[str]) -> None:
    """Serves until it is ended."""
    global _fault
    _fault = arguments[0]
    assert _fault in FAULTS
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    server = ThreadingHTTPServer((options["--host"], int(options["--port"])), _Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
