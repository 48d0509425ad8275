"""What the server itself costs: CPU microseconds per streamed token, with an engine that only waits.

The sim engine produces one token per stream and step; everything else is the server's own work: sampling,
text, SSE, HTTP, sockets. `floor` is the least that one asyncio loop can do: see sse_floor.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import uvloop
from load import ask, cpu_seconds_by_thread, free_port, percentile, print_table, wait_http

from llgtrt.bench.client import Answer

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figures:
    """One measured run."""

    tokens: int
    chunks: int
    cpu_s: dict[str, float]
    gaps_s: list[float]

    @property
    def us_per_token(self) -> float:
        return sum(self.cpu_s.values()) / self.tokens * 1e6


async def run_streams(port: int, streams: int, tokens: int) -> list[Answer]:
    body = {
        "messages": [{"role": "user", "content": "Go on."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return await ask(port, [body] * streams)


def measure(process: subprocess.Popen[bytes], port: int, streams: int, tokens: int) -> Figures:
    before = cpu_seconds_by_thread(process.pid)
    answers = uvloop.run(run_streams(port, streams, tokens))
    after = cpu_seconds_by_thread(process.pid)
    return Figures(
        # The floor server reports no usage: it writes one chunk per token.
        tokens=sum(answer.tokens for answer in answers),
        chunks=sum(len(answer.texts_s) for answer in answers),
        cpu_s={name: after[name] - before.get(name, 0.0) for name in after},
        gaps_s=[gap for answer in answers for gap in answer.gaps_s],
    )


def llgtrt_command(port: int, streams: int, step_ms: float, folder: Path) -> list[str]:
    config = folder / "sim.json5"
    options = {
        "runtime": {"max_batch_size": streams},
        "sim": {"step_us": int(step_ms * 1e3)},
    }
    config.write_text(json.dumps(options))
    executable = str(Path(sys.executable).with_name("llgtrt"))
    return [
        executable,
        "serve",
        "--backend",
        "sim",
        "-C",
        str(config),
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
        "-q",
    ]


def floor_command(port: int, tokens: int, step_ms: float) -> list[str]:
    return [
        sys.executable, str(HERE / "sse_floor.py"),
        "--port", str(port), "--tokens", str(tokens), "--step-ms", str(step_ms),
    ]  # fmt: skip


def run_server(command: list[str], port: int, path: str, streams: int, tokens: int) -> Figures:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_http(process, port, path)
        measure(process, port, streams, max(tokens // 10, 1) if "sse_floor" not in command[1] else tokens)
        return measure(process, port, streams, tokens)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--tokens", type=int, default=400, help="per stream")
    parser.add_argument("--step-ms", type=float, default=20.0)
    arguments = parser.parse_args()
    # A collection in this process, which keeps every chunk's time, would be a gap in all streams.
    gc.disable()

    rows, threads = [], []
    for streams in arguments.streams:
        for name in ("llgtrt", "floor"):
            port = free_port()
            with tempfile.TemporaryDirectory() as folder:
                if name == "llgtrt":
                    command = llgtrt_command(port, streams, arguments.step_ms, Path(folder))
                    path = "/v1/health/ready"
                else:
                    command, path = floor_command(port, arguments.tokens, arguments.step_ms), "/"
                figures = run_server(command, port, path, streams, arguments.tokens)
            rows.append(
                [
                    f"{streams} {name}",
                    str(figures.tokens),
                    f"{figures.tokens / figures.chunks:.2f}",
                    f"{figures.us_per_token:.1f}",
                    f"{percentile(figures.gaps_s, 0.5) * 1e3:.1f}",
                    f"{percentile(figures.gaps_s, 0.99) * 1e3:.1f}",
                ]
            )
            if name == "llgtrt":
                by_cost = sorted(figures.cpu_s.items(), key=lambda item: -item[1])
                shares = [
                    f"{thread} {cpu / figures.tokens * 1e6:.1f}" for thread, cpu in by_cost if cpu > 0.001
                ]
                threads.append(f"{streams} streams, us per token by thread: {', '.join(shares)}")
    print_table(["streams", "tokens", "tokens/chunk", "CPU us/token", "gap p50 ms", "gap p99 ms"], rows)
    print("\n".join(threads))


if __name__ == "__main__":
    main()
