"""What the benches share: asking servers, waiting for them, their CPU time, tables."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from llgtrt.bench.client import Answer, read_answer, run


async def ask(port: int, bodies: list[dict[str, Any]], clients: int | None = None) -> list[Answer]:
    """The answers of a chat server on this machine to ``bodies``, by the generator of ``llgtrt bench``.

    Each of ``clients`` sends the next body when one is answered; None: all are sent at once.

    Raises:
        RuntimeError: an answer is not complete.
    """
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    answers = [read_answer(one) for one in await run(url, bodies, concurrency=clients)]
    for answer in answers:
        if answer.error is not None or not answer.texts_s:
            raise RuntimeError(answer.error or "an answer without text")
    return answers


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
            time.sleep(0.01)
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
