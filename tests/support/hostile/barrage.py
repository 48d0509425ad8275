"""Sends many requests over a few connections and gathers what is wrong with the answers."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from support.hostile.verdict import fault_of
from support.hostile.wire import JSON, TIMEOUT_S
from support.server import ServerProcess

WORKERS = 4
MOST_FAULTS = 10

Shot = tuple[str, str, bytes]
"""A name for reports, the route, the body."""


def barrage(server: ServerProcess, shots: Iterable[Shot]) -> tuple[int, list[str]]:
    """How many requests were answered, and what was wrong with which; at most some faults per worker."""
    shots = list(shots)
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = [islice(shots, start, None, WORKERS) for start in range(WORKERS)]
        faults = [
            fault for found in pool.map(lambda part: list(_volley(server, part)), parts) for fault in found
        ]
    return len(shots), faults


def _volley(server: ServerProcess, shots: Iterator[Shot]) -> Iterator[str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    found = 0
    try:
        for name, path, body in shots:
            try:
                connection.request("POST", path, body, JSON)
                response = connection.getresponse()
                fault = fault_of(response.status, response.getheader("content-type", ""), response.read())
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                fault = f"no answer: {type(error).__name__}: {error}"
            if fault is not None:
                yield f"{name}: {fault}"
                found += 1
                if found == MOST_FAULTS:
                    return
    finally:
        connection.close()
