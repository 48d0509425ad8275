"""NVIDIA Dynamo's frontend and workers of ours on this machine: no etcd, no NATS, no Docker."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from support import wait

STARTS_WITHIN_S = 240
"""A machine that does other things as well loads a model for minutes."""

LOCAL = {
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_REQUEST_PLANE": "tcp",
    "DYN_EVENT_PLANE": "zmq",
    "DYN_TCP_RPC_HOST": "127.0.0.1",
    "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
    "DYN_EVENT_PLANE_HOST": "127.0.0.1",
    "DYN_SYSTEM_HOST": "127.0.0.1",
}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_system_port() -> int:
    """A port that nobody listens on, below 2^15: the runtime reads DYN_SYSTEM_PORT as 16 bits with a sign."""
    while True:
        port = random.randrange(16_384, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


wait_until = partial(wait.wait_until, timeout_s=STARTS_WITHIN_S, pause_s=0.05)
"""Until another process has brought something about."""


class Process:
    """A program in a process of its own, with its output in a file."""

    def __init__(self, folder: Path, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                arguments, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def text(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def wait(self, timeout_s: float = 120) -> int:
        """Its exit code."""
        return self.process.wait(timeout_s)

    def stop(self) -> None:
        """Ends it, whatever it does."""
        if self.alive():
            self.process.kill()
        self.process.wait()


class Worker(Process):
    """``llgtrt dynamo``."""

    def __init__(self, cluster: Cluster, name: str, *arguments: str) -> None:
        self.system_port = free_system_port()
        command = [sys.executable, "-m", "llgtrt", "dynamo", *arguments, "--grace-period", "3"]
        environment = {**cluster.environment, "DYN_SYSTEM_PORT": str(self.system_port)}
        super().__init__(cluster.folder, name, command, environment)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a path of the runtime's own server."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.system_port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def sample(self, *names: str) -> float:
        """The sum of the metrics whose names begin so."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))

    def requests(self) -> int:
        """How many requests generate, or wait for a place."""
        return int(self.sample("llgtrt_num_requests_running", "llgtrt_num_requests_waiting"))


class Cluster:
    """A frontend and its workers; with ``discovery`` another cluster's workers beside its own."""

    def __init__(self, folder: Path, *arguments: str, discovery: str | None = None) -> None:
        self.folder = folder
        self.environment = {**LOCAL, "DYN_FILE_KV": discovery or str(folder / "discovery")}
        self.port = free_port()
        command = [sys.executable, "-m", "dynamo.frontend", "--http-host", "127.0.0.1"]
        command += ["--http-port", str(self.port), *arguments]
        self.frontend = Process(folder, "frontend", command, self.environment)
        self.workers: list[Worker] = []

    @property
    def base_url(self) -> str:
        """Of OpenAI's API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def add(self, *arguments: str) -> Worker:
        """Starts a worker and waits until it is served by the runtime."""
        worker = Worker(self, f"worker-{len(self.workers)}", *arguments)
        self.workers.append(worker)
        ready = wait_until(
            lambda: worker.get("/health")[0] == 200 or not worker.alive(), "the worker is ready"
        )
        assert ready
        assert worker.alive(), worker.text()[-3000:]
        return worker

    def wait_for_model(self, name: str, instances: int) -> None:
        """Waits until the frontend serves a model with so many workers."""

        def served() -> bool:
            try:
                with urllib.request.urlopen(f"{self.base_url}/models", timeout=10) as response:
                    if name not in response.read().decode():
                        return False
                health = f"http://127.0.0.1:{self.port}/health"
                with urllib.request.urlopen(health, timeout=10) as response:
                    return response.read().decode().count('"generate"') >= instances
            except OSError:
                return False

        wait_until(served, f"{name} is served")

    def stop(self) -> None:
        """Ends everything."""
        for process in (*self.workers, self.frontend):
            with contextlib.suppress(OSError):
                process.stop()
