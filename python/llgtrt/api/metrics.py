"""Metrics of the HTTP side, beside those of the core."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from llgtrt.api.model_metrics import merged
from llgtrt.serving import Models

CONTENT_TYPE = CONTENT_TYPE_LATEST

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})


class HttpMetrics:
    """Counters of requests and of clients that left."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests = Counter(
            "llgtrt_http_requests",
            "HTTP requests by route, method and status; 499 is a client that left before the answer.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._disconnects = Counter(
            "llgtrt_http_disconnects",
            "Requests cancelled because the client left (disconnected) or did not read (slow).",
            ["reason"],
            registry=self.registry,
        )
        self._key_requests = Counter(
            "llgtrt_key_requests",
            "POST requests by the name of their API key: admitted, or limited with status 429.",
            ["key", "result"],
            registry=self.registry,
        )
        self._refused_connections = Counter(
            "llgtrt_http_connections_refused",
            "Connections beyond what the limit of open files allows.",
            registry=self.registry,
        )
        self._hook_failures = Counter(
            "llgtrt_hook_failures",
            "Calls of the hook's methods that failed (error) or took too long (timeout).",
            ["method", "reason"],
            registry=self.registry,
        )
        for reason in ("disconnected", "slow"):
            self._disconnects.labels(reason)

    def request(self, route: str, method: str, status: int) -> None:
        """Counts a finished request. Label values are bounded: unknown routes and methods are one each."""
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()

    def disconnect(self, reason: str) -> None:
        """Counts a request that was cancelled for its client's sake."""
        self._disconnects.labels(reason).inc()

    def connection_refused(self) -> None:
        """Counts a connection that was turned away."""
        self._refused_connections.inc()

    def key_request(self, key: str | None, result: str) -> None:
        """Counts a request that its key's limits let in (admitted) or not (limited)."""
        if key is not None:
            self._key_requests.labels(key, result).inc()

    def hook_failure(self, method: str, reason: str) -> None:
        """Counts a call of a hook that failed."""
        self._hook_failures.labels(method, reason).inc()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a gauge that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def text(self, models: Models) -> bytes:
        """All metrics in Prometheus text format; of several models each has the label ``model``."""
        if models.several:
            texts = merged([one.metrics(one.model.name) for one in models])
        else:
            texts = "".join(one.metrics(None) for one in models)
        return texts.encode() + generate_latest(self.registry)


def samples(text: str) -> dict[str, float]:
    """The samples of a text exposition by name, with the labels as they are written."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    return values
