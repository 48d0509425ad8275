"""Spans and measurements of requests, in the exporters that the SDK has for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from llgtrt.api.telemetry import Telemetry, start_telemetry
from llgtrt.engine import OverloadedError, new_error
from support.asgi import AsgiCall
from support.fake_engine import (
    AppFactory,
    FakeChoice,
    FakeDelta,
    FakeNativeEngine,
    FakeSummary,
    FakeUsage,
    settle,
)

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "a secret prompt"}],
    "max_tokens": 7,
    "temperature": 0.5,
    "seed": 3,
    "response_format": {"type": "json_object"},
}
ROUTE = "/v1/chat/completions"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collected:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        traces = TracerProvider()
        traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(traces, MeterProvider(metric_readers=[self._reader]))

    def spans(self) -> dict[str, ReadableSpan]:
        """By name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def measured(self) -> dict[str, Any]:
        """The only point of each metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [
            one for group in data.resource_metrics for scope in group.scope_metrics for one in scope.metrics
        ]
        return {metric.name: next(iter(metric.data.data_points)) for metric in metrics}


@pytest.fixture
def collected() -> Iterator[Collected]:
    """An application's telemetry, in memory."""
    one = Collected()
    yield one
    one.telemetry.shutdown()


async def run(call: AsgiCall, native: FakeNativeEngine, *, stream: bool) -> None:
    await settle()
    handle = native.handles[-1]
    handle.known = FakeSummary(FakeUsage(11, 5, 2, 1), ["stop"], (0.001, 0.003), 0.004, 0.014, 0.114)
    if not stream:
        handle.known.finish_reasons.clear()  # The delta brings it.
    payload: Any = b"data: [DONE]\n\n" if stream else FakeDelta([FakeChoice(0, "{}")], FakeUsage(11, 5, 2, 1))
    handle.put(payload, last=True)
    await call.done()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_is_a_span_with_its_phases(
    make_app: AppFactory, native: FakeNativeEngine, collected: Collected, stream: bool
) -> None:
    app = make_app(telemetry=collected.telemetry)
    headers = [("traceparent", f"00-{TRACE}-{PARENT}-01")]
    async with AsgiCall(app, ROUTE, {**CHAT, "stream": stream}, headers=headers) as call:
        await run(call, native, stream=stream)
    spans = collected.spans()
    assert set(spans) == {"chat fake", "queue", "compile", "prefill", "decode"}
    root = spans["chat fake"]
    assert root.kind is SpanKind.SERVER
    assert root.context is not None
    assert root.parent is not None
    assert (f"{root.context.trace_id:032x}", f"{root.parent.span_id:016x}") == (TRACE, PARENT)
    attributes = dict(root.attributes or {})
    assert attributes.pop("gen_ai.response.id")
    assert attributes == {
        "http.request.method": "POST",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llgtrt",
        "gen_ai.request.model": "fake",
        "gen_ai.response.model": "fake",
        "gen_ai.request.stream": stream,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 3,
        "gen_ai.output.type": "json",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.response.finish_reasons": ("stop",),
        "llgtrt.usage.forced_tokens": 1,
        "llgtrt.constraint.kind": "json_object",
    }
    lengths = {}
    for name in ("queue", "compile", "prefill", "decode"):
        span = spans[name]
        assert span.parent is not None
        assert span.parent.span_id == root.context.span_id
        assert span.start_time is not None
        assert span.end_time is not None
        lengths[name] = (span.end_time - span.start_time) / 1e6
    assert lengths == pytest.approx({"queue": 4, "compile": 2, "prefill": 10, "decode": 100})
    assert spans["queue"].end_time == spans["prefill"].start_time
    assert spans["prefill"].end_time == spans["decode"].start_time
    assert "secret" not in str([span.to_json() for span in spans.values()])


async def test_measurements_have_the_names_of_the_conventions(
    make_app: AppFactory, native: FakeNativeEngine, collected: Collected
) -> None:
    async with AsgiCall(make_app(telemetry=collected.telemetry), ROUTE, CHAT) as call:
        await run(call, native, stream=False)
    measured = collected.measured()
    assert set(measured) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
    }
    assert measured["gen_ai.server.request.duration"].sum == pytest.approx(0.114)
    assert measured["gen_ai.server.time_to_first_token"].sum == pytest.approx(0.014)
    assert measured["gen_ai.server.time_per_output_token"].sum == pytest.approx(0.1 / 4)
    assert dict(measured["gen_ai.server.request.duration"].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llgtrt",
        "gen_ai.request.model": "fake",
    }


async def test_errors_are_told(make_app: AppFactory, native: FakeNativeEngine, collected: Collected) -> None:
    app = make_app(telemetry=collected.telemetry)
    native.places = 0
    async with AsgiCall(app, ROUTE, CHAT) as call:
        await call.done()
    refused = collected.spans()[f"POST {ROUTE}"]
    assert refused.attributes is not None
    assert refused.attributes["http.response.status_code"] == 503
    assert refused.attributes["error.type"] == "overloaded"
    assert refused.status.status_code is StatusCode.ERROR
    native.places = 1000
    async with AsgiCall(app, ROUTE, CHAT) as call:
        await settle()
        native.handles[-1].put(FakeDelta(error=new_error(OverloadedError, "full")), last=True)
        await call.done()
    failed = collected.spans()["chat fake"]
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "overloaded"
    async with AsgiCall(app, ROUTE, {**CHAT, "messages": 1}) as call:
        await call.done()
    wrong = [span for span in collected._exporter.get_finished_spans() if span.name.startswith("POST")][-1]
    assert wrong.status.status_code is StatusCode.UNSET
    assert "gen_ai.server.time_to_first_token" not in collected.measured()


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_probes_leave_no_span(make_app: AppFactory, collected: Collected, path: str) -> None:
    async with AsgiCall(make_app(telemetry=collected.telemetry), path, method="GET") as call:
        await call.done()
    assert collected.spans() == {}


def test_the_variables_of_opentelemetry_choose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    start_telemetry().shutdown()
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "telegram")
    with pytest.raises(ValueError, match=r"OTEL_METRICS_EXPORTER: there is no exporter 'telegram'"):
        start_telemetry()
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ValueError, match="only http/protobuf"):
        start_telemetry()
