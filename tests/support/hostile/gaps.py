"""The gaps between the tokens of a stream beside the hostile requests, seen from a process of its own.

``python gaps.py PORT`` reads one stream after the other until its standard input ends, and then prints the
gaps as JSON.
"""

from __future__ import annotations

import http.client
import json
import select
import subprocess
import sys
import time
from types import TracebackType

TIMEOUT_S = 60.0

TOKENS = 200
"""Of one answer."""


class TokenGaps:
    """Reads a neighbour's stream while the context is open; ``times_ms`` are there afterwards."""

    def __init__(self, port: int) -> None:
        self.times_ms: list[float] = []
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> TokenGaps:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "reading\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        output, _ = self._process.communicate(timeout=2 * TIMEOUT_S)
        self.times_ms = json.loads(output)


def _gaps(port: int) -> list[float]:
    """Those of one answer, in milliseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        body = {"prompt": "beside", "stream": True, "max_tokens": TOKENS, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        gaps: list[float] = []
        last = None
        for line in response:
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                if last is not None:
                    gaps.append((now - last) * 1000)
                last = now
        return gaps
    finally:
        connection.close()


def main(port: int) -> None:
    """The reading process."""
    gaps = _gaps(port)
    print("reading", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        gaps += _gaps(port)
    print(json.dumps(gaps))


if __name__ == "__main__":
    main(int(sys.argv[1]))
