"""A health probe in a process of its own, as a load balancer's is: each time on a new connection.

``python probe.py PORT TIMEOUT_S`` probes until its standard input ends, and then prints what it saw as JSON.
"""

from __future__ import annotations

import http.client
import json
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from types import TracebackType

INTERVAL_S = 0.02
TIMEOUT_S = 10.0
"""As long as a patient supervisor waits; a machine that is merely busy stays far below."""
PATHS = ("/v1/health/live", "/v1/health/ready")


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe saw.

    Attributes:
        count: probes that were sent.
        failures: what went wrong, as text; at most 20.
        times_ms: how long each took to the whole answer, in milliseconds.
    """

    count: int
    failures: list[str]
    times_ms: list[float]

    def __str__(self) -> str:
        return (
            f"{self.count} probes, p99 {percentile(self.times_ms, 99):.1f} ms, "
            f"longest {max(self.times_ms):.1f} ms"
        )


def percentile(values: list[float], percent: int) -> float:
    """A percentile of some values."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


class HealthProbe:
    """Probes a server from another process while the context is open; ``report`` is there afterwards."""

    def __init__(self, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.report: ProbeReport
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(port), str(timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> HealthProbe:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "probing\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        output, _ = self._process.communicate(timeout=4 * TIMEOUT_S)
        self.report = ProbeReport(**json.loads(output))

    def check(self) -> None:
        """Fails if a probe was not answered 200 in time."""
        assert self.report.count > 0
        assert not self.report.failures, self.report.failures


def _probe(port: int, path: str, timeout_s: float) -> str | None:
    """What is wrong; nothing in most cases."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        return f"{path}: {type(error).__name__}: {error}"
    finally:
        connection.close()
    return None if response.status == 200 else f"{path}: {response.status}: {body[:200].decode()}"


def main(port: int, timeout_s: float) -> None:
    """The probing process."""
    print("probing", flush=True)
    times: list[float] = []
    failures: list[str] = []
    while True:
        began = time.perf_counter()
        failure = _probe(port, PATHS[len(times) % len(PATHS)], timeout_s)
        times.append((time.perf_counter() - began) * 1000)
        if failure is not None:
            failures.append(failure)
        if select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            break
    print(json.dumps({"count": len(times), "failures": failures[:20], "times_ms": times}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
