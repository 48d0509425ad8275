"""Traces and metrics by OpenTelemetry, with the semantic conventions for generative AI.

A request becomes a span at its end, from moments that were noted on its way: nothing is done per token.
Where the core has had it, ``queue``, ``compile``, ``prefill`` and ``decode`` are spans within. Prompts and
answers are in none. Needs ``llgtrt[otel]``: imported only where it is asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter, MeterProvider
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, set_span_in_context
from opentelemetry.util.types import AttributeValue
from starlette.types import Scope

from llgtrt.api.context import CLIENT_CLOSED, Ended
from llgtrt.api.record import GENERATION
from llgtrt.engine import Summary, __version__
from llgtrt.serving import Generation, Traits

NAME = "llgtrt"

CANCELLED = "cancelled"
"""The error type of a request whose client left or was too slow."""

ASKED = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
}
"""Fields of requests, and what the conventions call them."""

DURATION_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
"""Bounds of the buckets, as the conventions give them."""

Attributes = dict[str, AttributeValue]


class Telemetry:
    """Makes spans and measurements of requests that are over."""

    def __init__(self, traces: TracerProvider, metrics: MeterProvider) -> None:
        self._traces = traces
        self._metrics = metrics
        self._tracer = traces.get_tracer(NAME, __version__)
        meter = metrics.get_meter(NAME, __version__)
        self._duration = _seconds(
            meter, "gen_ai.server.request.duration", "Time of a request, to its last token.", DURATION_S
        )
        self._first_token = _seconds(
            meter,
            "gen_ai.server.time_to_first_token",
            "Time to the first token, queue included.",
            FIRST_TOKEN_S,
        )
        self._per_token = _seconds(
            meter, "gen_ai.server.time_per_output_token", "Time per token after the first one.", TOKEN_S
        )

    def request(self, ended: Ended) -> str | None:
        """Reports a request; gives the id of its trace, or ``None`` where it is not recorded."""
        generation: Generation | None = ended.scope.get(GENERATION)
        traits = None if generation is None else generation.traits
        summary = None if generation is None else generation.stream.summary
        error = _error_type(ended)
        span = self._tracer.start_span(
            _name(ended, traits),
            context=_parent(ended.scope),
            kind=SpanKind.SERVER,
            attributes=dict(_http_attributes(ended)),
            start_time=ended.began_ns,
        )
        if generation is not None and traits is not None and summary is not None:
            if span.is_recording():
                span.set_attributes(dict(_generation_attributes(traits, summary)))
                self._phases(span, generation.stream.submitted, summary)
            self._measure(traits, summary, error)
        if error is not None:
            span.set_attribute("error.type", error)
            # What a client did wrong is no error of the server.
            if not 400 <= ended.status <= CLIENT_CLOSED and error != CANCELLED:
                span.set_status(Status(StatusCode.ERROR))
        span.end(time.time_ns())
        context = span.get_span_context()
        return f"{context.trace_id:032x}" if span.is_recording() or context.trace_flags.sampled else None

    def shutdown(self) -> None:
        """Sends what is not sent yet. Blocks for as long as the exporters may take."""
        for provider in (self._traces, self._metrics):
            shutdown = getattr(provider, "shutdown", None)
            if shutdown is not None:
                shutdown()

    def _phases(self, parent: Span, submitted_ns: int, summary: Summary) -> None:
        within = set_span_in_context(parent)
        ended = summary.ended_s
        for name, begin, end in (
            ("queue", 0.0, _first(summary.started_s, ended)),
            ("compile", *(summary.compile_s or (None, None))),
            ("prefill", summary.started_s, _first(summary.first_token_s, ended)),
            ("decode", summary.first_token_s, ended),
        ):
            if begin is not None and end is not None:
                start_ns = submitted_ns + round(begin * 1e9)
                span = self._tracer.start_span(name, context=within, start_time=start_ns)
                span.end(max(submitted_ns + round(end * 1e9), start_ns))

    def _measure(self, traits: Traits, summary: Summary, error: str | None) -> None:
        attributes: Attributes = {
            "gen_ai.operation.name": traits.operation,
            "gen_ai.provider.name": NAME,
            "gen_ai.request.model": traits.model,
        }
        if error is not None:
            attributes["error.type"] = error
        if summary.ended_s is not None:
            self._duration.record(summary.ended_s, attributes)
        if summary.first_token_s is None or error is not None:
            return
        self._first_token.record(summary.first_token_s, attributes)
        choices = max(len(summary.finish_reasons), 1)
        later = summary.usage.completion_tokens / choices - 1
        if summary.ended_s is not None and later >= 1:
            self._per_token.record((summary.ended_s - summary.first_token_s) / later, attributes)


def start_telemetry() -> Telemetry:
    """Telemetry that goes where the variables ``OTEL_*`` say: by OTLP over HTTP unless they say otherwise.

    Raises:
        ValueError: a variable names an exporter that is not here.
    """
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.version": __version__})
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: NAME}))
    traces = SdkTracerProvider(resource=resource)
    if (spans := _exporter("traces")) is not None:
        traces.add_span_processor(BatchSpanProcessor(spans))
    measurements = _exporter("metrics")
    readers = [] if measurements is None else [PeriodicExportingMetricReader(measurements)]
    return Telemetry(traces, SdkMeterProvider(metric_readers=readers, resource=resource))


def _exporter(signal: str) -> Any:
    """The exporter of ``OTEL_TRACES_EXPORTER`` or ``OTEL_METRICS_EXPORTER``; ``None`` for ``none``."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    name = os.environ.get(variable, "").strip() or "otlp"
    if name == "none":
        return None
    if name == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter() if signal == "traces" else ConsoleMetricExporter()
    if name != "otlp":
        raise ValueError(f"{variable}: there is no exporter {name!r}, only otlp, console and none")
    for protocol in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(protocol, "http/protobuf") != "http/protobuf":
            raise ValueError(f"{protocol}: only http/protobuf is there")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter() if signal == "traces" else OTLPMetricExporter()


def _seconds(meter: Meter, name: str, text: str, bounds: list[float]) -> Histogram:
    return meter.create_histogram(
        name, unit="s", description=text, explicit_bucket_boundaries_advisory=bounds
    )


def _parent(scope: Scope) -> Context:
    """The context that the client sent, such as a W3C ``traceparent``."""
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return extract(carrier)


def _name(ended: Ended, traits: Traits | None) -> str:
    if traits is not None:
        return f"{traits.operation} {traits.model}"
    return f"{ended.scope['method']} {ended.route}"


def _error_type(ended: Ended) -> str | None:
    """The code of an error, also of one within a stream; the status where there is none."""
    if (code := ended.record.get("error")) is not None:
        return str(code)
    if ended.record.get("outcome") is not None:
        return CANCELLED
    return str(ended.status) if ended.status >= 400 else None


def _http_attributes(ended: Ended) -> Iterator[tuple[str, AttributeValue]]:
    yield "http.request.method", ended.scope["method"]
    yield "http.route", ended.route
    yield "http.response.status_code", ended.status


def _generation_attributes(traits: Traits, summary: Summary) -> Iterator[tuple[str, AttributeValue]]:
    yield "gen_ai.operation.name", traits.operation
    yield "gen_ai.provider.name", NAME
    yield "gen_ai.request.model", traits.model
    yield "gen_ai.response.model", traits.model
    yield "gen_ai.response.id", traits.response_id
    yield "gen_ai.request.stream", bool(getattr(traits.asked, "stream", False))
    for name, attribute in ASKED.items():
        if (value := getattr(traits.asked, name, None)) is not None:
            yield attribute, value
    usage = summary.usage
    yield "gen_ai.usage.input_tokens", usage.prompt_tokens
    yield "gen_ai.usage.output_tokens", usage.completion_tokens
    yield "gen_ai.usage.cache_read.input_tokens", usage.cached_tokens
    yield "llgtrt.usage.forced_tokens", usage.forced_tokens
    if summary.finish_reasons:
        yield "gen_ai.response.finish_reasons", summary.finish_reasons
    if traits.constraint is not None:
        yield "llgtrt.constraint.kind", traits.constraint
        yield "gen_ai.output.type", "json" if traits.constraint.startswith("json") else "text"


def _first(*moments: float | None) -> float | None:
    """The first that is known."""
    return next((moment for moment in moments if moment is not None), None)
