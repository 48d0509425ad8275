"""A llgtrt server in its own process, for tests that talk to it as a user would."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx

from support.wait import wait_until as wait_until

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def llgtrt_executable() -> str:
    """The console script of the environment that runs the tests, or the one that a variable names."""
    named = os.environ.get("LLGTRT_TEST_EXECUTABLE")
    return named or str(Path(sys.executable).with_name("llgtrt"))


def clean_environment() -> dict[str, str]:
    """The environment without variables that would change the server under test."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LLGTRT_") and name != "RUST_BACKTRACE"
    }


def run_llgtrt(
    *arguments: str, timeout_s: float = 60.0, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``llgtrt`` to its end."""
    return subprocess.run(
        [llgtrt_executable(), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**clean_environment(), **(env or {})},
        cwd=cwd,
        check=False,
    )


class ServerProcess:
    """Runs ``llgtrt`` on a free port; use it as a context manager.

    Entering waits until the server is ready; leaving stops it, hard if need be.
    """

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        wait: bool = True,
        prefix: Sequence[str] = (),
        command: Sequence[str] = (),
    ) -> None:
        """
        Args:
            arguments: those of the command line.
            env: variables beside a clean environment.
            wait: whether entering the context waits until the server is ready.
            prefix: a command that runs what follows it in its place, such as ``prlimit``.
            command: what to run in place of ``llgtrt``.
        """
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self._wait = wait
        self.process = subprocess.Popen(
            [
                *prefix,
                *(command or [llgtrt_executable()]),
                *arguments,
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**clean_environment(), **(env or {})},
        )

    def __enter__(self) -> ServerProcess:
        if self._wait:
            try:
                self.wait_ready()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def output(self) -> str:
        """Everything the process printed so far."""
        # pread: the child appends through the same open file, whose position must not move.
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def get(self, path: str) -> httpx.Response:
        """One GET on a new connection."""
        # Without verify=False each client would read all certificates of the system.
        return httpx.get(self.base_url + path, timeout=10, verify=False)

    def is_ready(self) -> bool:
        """Whether the readiness probe answers 200. Fails if the process has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with code {self.process.returncode}:\n{self.output}")
        try:
            return self.get("/v1/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def wait_ready(self) -> None:
        """Blocks until the server can answer."""
        try:
            wait_until(self.is_ready, "the server is ready", START_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    def metrics(self) -> dict[str, float]:
        """All samples of ``/metrics`` by name, labels included as they are written."""
        samples = {}
        for line in self.get("/metrics").text.splitlines():
            if match := re.fullmatch(r"([a-zA-Z_:][^ ]*(?:\{.*\})?) (\S+)", line):
                samples[match[1]] = float(match[2])
        return samples

    def metric(self, name: str) -> float:
        """One sample; 0 if the server does not report it yet."""
        return self.metrics().get(name, 0.0)

    def is_idle(self) -> bool:
        """Whether no sequence runs or waits."""
        samples = self.metrics()
        return samples["llgtrt_num_requests_running"] == 0 and samples["llgtrt_num_requests_waiting"] == 0

    def terminate(self) -> None:
        """Sends SIGTERM, without waiting."""
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code, once the process has ended. Fails with what it printed if it does not."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:g} s:\n{self.output}") from None

    def close(self) -> None:
        """Stops the process if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()
