"""A load generator that costs little: raw sockets, timestamps now, parsing after the measurement."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True)
class Answer:
    """One streamed answer."""

    start_s: float
    piece_times_s: tuple[float, ...]
    """When each event with text arrived."""

    end_s: float
    text: str
    finish_reason: str | None
    completion_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.piece_times_s[0] - self.start_s

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in zip(self.piece_times_s, self.piece_times_s[1:], strict=False)]


class StreamProtocol(asyncio.Protocol):
    """Sends one request and keeps every segment with its arrival time until the peer closes."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.segments: list[tuple[float, bytes]] = []
        self.start_s = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.start_s = time.perf_counter()
        cast(asyncio.WriteTransport, transport).write(self.request)

    def data_received(self, data: bytes) -> None:
        self.segments.append((time.perf_counter(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def fetch(port: int, path: str, body: dict[str, Any]) -> StreamProtocol:
    """One POST on a connection of its own; returns when the server closes it."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: StreamProtocol(head.encode() + content), "127.0.0.1", port
    )
    await protocol.done
    return protocol


def parse(protocol: StreamProtocol) -> Answer:
    """Reads what arrived; raises ``RuntimeError`` unless it is a complete stream with status 200."""
    raw = b"".join(data for _, data in protocol.segments)
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"not status 200: {raw[:500]!r}")
    offset = len(raw) - len(body)
    chunked = b"transfer-encoding: chunked" in head.lower()
    ends: list[tuple[int, float]] = []
    position = 0
    for at, data in protocol.segments:
        position += len(data)
        ends.append((position, at))

    events: list[tuple[bytes, float]] = []
    pending = b""
    for piece, end in _chunks(raw, offset) if chunked else [(body, len(raw))]:
        while ends[0][0] < end:
            ends.pop(0)
        pending += piece
        *complete, pending = pending.split(b"\n\n")
        events += [(event, ends[0][1]) for event in complete]

    times: list[float] = []
    text, finish, tokens, done = "", None, 0, False
    for event, at in events:
        data = event.strip().removeprefix(b"data: ")
        if data == b"[DONE]":
            done = True
        elif data.startswith(b"{"):
            chunk = json.loads(data)
            if "error" in chunk:
                raise RuntimeError(f"the stream failed: {chunk['error']}")
            for choice in chunk.get("choices", []):
                content = choice.get("delta", {}).get("content") or choice.get("text")
                if content:
                    text += content
                    times.append(at)
                finish = choice.get("finish_reason") or finish
            if usage := chunk.get("usage"):
                tokens = usage["completion_tokens"]
    if not done or not times:
        raise RuntimeError(f"incomplete stream: {raw[-300:]!r}")
    return Answer(protocol.start_s, tuple(times), protocol.segments[-1][0], text, finish, tokens)


def _chunks(raw: bytes, offset: int) -> list[tuple[bytes, int]]:
    """The payloads of a chunked body, each with the offset of its end."""
    chunks: list[tuple[bytes, int]] = []
    while True:
        line_end = raw.index(b"\r\n", offset)
        size = int(raw[offset:line_end].split(b";")[0], 16)
        start = line_end + 2
        if size == 0:
            return chunks
        chunks.append((raw[start : start + size], start + size))
        offset = start + size + 2


def percentile(values: list[float], fraction: float) -> float:
    """Nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_http(process: subprocess.Popen[Any], port: int, path: str, timeout_s: float = 60) -> None:
    """Polls ``path`` until it answers 200."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"port {port} not ready within {timeout_s} s")


def cpu_seconds_by_thread(pid: int) -> dict[str, float]:
    """CPU time of a process so far, summed over threads of one name (digits at the end dropped)."""
    times: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip().rstrip("0123456789-_")
            nanoseconds = int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # the thread has ended
        times[name] = times.get(name, 0.0) + nanoseconds / 1e9
    return times


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Right-aligned columns under one header; the first column is left-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
