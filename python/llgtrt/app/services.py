"""From a loaded engine to the use cases, and from those of all models to what the routes work with."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from llgtrt.api.compat_metrics import CompatMetrics
from llgtrt.api.context import RequestTelemetry
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.model_metrics import ModelMetrics
from llgtrt.api.services import ModelRepository, Services
from llgtrt.app.fingerprint import system_fingerprint
from llgtrt.chat import ChatTemplate
from llgtrt.config import ConfigError, MetricNames, ServerConfig, Settings, disaggregation_key
from llgtrt.config.generation import sampling_defaults
from llgtrt.engine import AsyncEngine, ModelInfo
from llgtrt.hooks import HookRunner, LogitsProcessors, ProcessorPool
from llgtrt.serving import (
    AnswerFormats,
    ChatPrompts,
    ChatService,
    CompletionService,
    Disaggregation,
    Models,
    ModelServices,
    ServedModel,
    TokenLimits,
    TokenWork,
    TritonService,
    ValidateService,
)
from llgtrt.serving.apis.embeddings import embeddings_api
from llgtrt.serving.apis.llamacpp import llamacpp_api
from llgtrt.serving.apis.messages import messages_api
from llgtrt.serving.apis.responses import ResponseStore, responses_api
from llgtrt.serving.apis.tokens import tokens_api
from llgtrt.serving.tokens import STACK_BYTES as TOKEN_STACK
from llgtrt.serving.tokens import THREAD_NAME as TOKEN_THREAD_NAME
from llgtrt.serving.tokens import THREADS as TOKEN_THREADS
from llgtrt.serving.validate import THREAD_NAME as VALIDATE_THREAD_NAME
from llgtrt.serving.validate import THREADS as VALIDATE_THREADS
from llgtrt.threads import start_threads


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads that all models share."""

    validate: ThreadPoolExecutor
    tokens: ThreadPoolExecutor

    @classmethod
    def start(cls) -> Threads:
        """The threads, which run already.

        Raises:
            ConfigError: the system does not give as many.
        """
        return cls(
            start_threads(VALIDATE_THREAD_NAME, VALIDATE_THREADS),
            start_threads(TOKEN_THREAD_NAME, TOKEN_THREADS, TOKEN_STACK),
        )


def model_services(
    settings: Settings,
    engine: AsyncEngine,
    template: ChatTemplate,
    compat: Sequence[MetricNames],
    *,
    processor: ProcessorPool | None = None,
    hook: HookRunner | None = None,
    processors: LogitsProcessors | None = None,
    threads: Threads | None = None,
) -> ModelServices:
    """The use cases of a model.

    Args:
        settings: the model's own.
        engine, template: the loaded model.
        compat: under whose names there are metrics beside ours.
        processor, hook, processors: the operator's code, if there is any.
        threads: without them the use cases start their own.
    """
    server = settings.config.server
    info = engine.model_info
    limits = TokenLimits(
        max_n=server.max_n,
        default_max_tokens=server.default_max_tokens,
        clamp_max_tokens=server.max_tokens_beyond_context == "clamp",
    )
    defaults = sampling_defaults(settings, info.metadata)
    model = ServedModel(
        settings.served_model_name,
        info.max_sequence_tokens,
        info.adapters,
        any_name=server.any_model_name,
        other_names=server.model_names[1:],
        aliases=server.model_aliases,
        embedding_name=settings.embedding_model_name,
        embedding_tokens=0 if info.embedder is None else info.embedder.max_tokens,
        system_fingerprint=system_fingerprint(settings, info, template.source, defaults, limits),
    )
    compat_metrics = CompatMetrics(
        compat,
        model.name,
        engine,
        settings.config.kv_events.block_size,
        prefix_caching=settings.config.runtime.enable_kv_cache_reuse,
    )
    metrics = ModelMetrics(engine, compat_metrics)
    if processor is not None:
        metrics.gauge(
            "llgtrt_input_processor_requests",
            "Requests that the input processor works on, or that wait for it.",
            processor.calls,
        )
    disaggregation = _disaggregation(settings, info)
    completions = CompletionService(
        engine,
        model,
        limits=limits,
        defaults=defaults,
        receipts=server.receipt,
        hook=hook,
        processors=processors,
        disaggregation=disaggregation,
    )
    tokens = TokenWork(engine, None if threads is None else threads.tokens)
    chat = ChatService(
        engine,
        model,
        ChatPrompts(engine, template, processor),
        formats=AnswerFormats.of_model(engine, template.source, settings.config.tools.parser),
        limits=limits,
        defaults=defaults,
        receipts=server.receipt,
        tokens=tokens,
        hook=hook,
        processors=processors,
        disaggregation=disaggregation,
    )
    return ModelServices(
        engine=engine,
        model=model,
        chat=chat,
        completions=completions,
        triton=TritonService(engine, model, completions, server.max_n),
        validate=ValidateService(engine, None if threads is None else threads.validate),
        tokens=tokens,
        metrics=metrics.text,
    )


def _disaggregation(settings: Settings, info: ModelInfo) -> Disaggregation | None:
    """What the model does of answers that are divided between servers; ``None``: nothing.

    Raises:
        ConfigError: there is no key, or the engine hands nothing over.
    """
    section = settings.config.disaggregation
    key = disaggregation_key(section)
    if key is None:
        return None
    if not info.handover:
        needed = "; TensorRT-LLM needs trtllm.cache_transceiver_backend" if info.backend == "trtllm" else ""
        raise ConfigError(f"disaggregation.role: the {info.backend} engine hands no KV cache over{needed}")
    phases = {"context", "generation"} if section.role == "both" else {str(section.role)}
    return Disaggregation(frozenset(phases), key, section.max_state_bytes)


def server_services(
    server: ServerConfig,
    models: Models,
    metrics: HttpMetrics,
    *,
    telemetry: RequestTelemetry | None = None,
    repository: ModelRepository | None = None,
) -> Services:
    """What the routes work with."""
    store = ResponseStore(server.stored_responses, server.stored_response_bytes)
    metrics.gauge("llgtrt_stored_responses", "Responses kept for later requests.", lambda: store.count)
    metrics.gauge("llgtrt_stored_response_bytes", "What they take, in bytes.", lambda: store.size)
    return Services(
        models=models,
        apis=(
            responses_api(models, store, server.request_timeout_s),
            messages_api(models),
            tokens_api(models),
            embeddings_api(models),
            llamacpp_api(models),
        ),
        server=server,
        metrics=metrics,
        telemetry=telemetry,
        repository=repository,
    )


def build_services(
    settings: Settings,
    engine: AsyncEngine,
    template: ChatTemplate,
    telemetry: RequestTelemetry | None = None,
) -> Services:
    """What the routes work with, for one model that is loaded."""
    one = model_services(settings, engine, template, settings.config.metrics.compat)
    return server_services(settings.config.server, Models([one]), HttpMetrics(), telemetry=telemetry)
