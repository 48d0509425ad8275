"""The composition root: loads the engine, opens the port, and ends the process in good order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import resource
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import uvloop

from llgtrt.api import CompatMetrics, HttpMetrics, Services, create_app
from llgtrt.api.context import RequestTelemetry
from llgtrt.api.listen import bind, is_open_to_all
from llgtrt.api.server import HttpServer, Signals, exit_now
from llgtrt.chat import ChatTemplate, load_chat_template
from llgtrt.config import ConfigError, ServerConfig, Settings, native_config, tls_context
from llgtrt.engine import (
    AsyncEngine,
    LlgtrtError,
    __version__,
    plugin_sources,
    process_rank,
    start_core_log,
    work_for_leader,
)
from llgtrt.hooks import (
    HookRunner,
    ProcessorPool,
    load_hook,
    load_processor_class,
    start_hook,
    start_processor,
)
from llgtrt.logs import Levels
from llgtrt.serving import (
    AnswerFormats,
    ChatPrompts,
    ChatService,
    CompletionService,
    ServedModel,
    TokenLimits,
    TokenWork,
    TritonService,
    ValidateService,
    started_threads,
)
from llgtrt.serving.apis.messages import messages_api
from llgtrt.serving.apis.responses import ResponseStore, responses_api
from llgtrt.serving.apis.tokens import tokens_api
from llgtrt.serving.offload import MOST_THREADS as WORK_THREADS
from llgtrt.serving.tokens import STACK_BYTES as TOKEN_STACK
from llgtrt.serving.tokens import THREAD_NAME as TOKEN_THREAD_NAME
from llgtrt.serving.tokens import THREADS as TOKEN_THREADS
from llgtrt.serving.validate import MAX_AT_ONCE as MOST_REPORTS
from llgtrt.serving.validate import THREAD_NAME as VALIDATE_THREAD_NAME
from llgtrt.truss import load_model_class, start_model

if TYPE_CHECKING:
    from llgtrt.api.telemetry import Telemetry

logger = logging.getLogger("llgtrt")

ENGINE_STOP_S = 4.0
"""An engine that failed and does not stop must not keep the process: it has to be gone within 10 s."""
MOST_FILES = 65_536
"""What the limit of open files is raised to, as far as it may be."""
FEW_FILES = 512
SWITCH_INTERVAL_S = 0.001
"""How long a thread may go on when the event loop wants its turn; Python's default is five times that."""
PROCESSOR_STOP_S = 2.0
"""How long a call of the operator's Python that nobody waits for any more may keep the process."""


def run(settings: Settings) -> int:
    """Serves until a signal or the engine's end, and gives the exit code.

    Of several processes that run one TensorRT-LLM engine, the first serves and the others work for it.

    Raises:
        ConfigError: the port, the configuration or the model is unusable; no port was opened.
    """
    start_core_log(
        Levels.parse(settings.log_level).core(), json_lines=settings.config.server.log_format == "json"
    )
    if settings.backend == "trtllm" and process_rank() > 0:
        try:
            return work_for_leader(native_config(settings))
        except LlgtrtError as error:
            raise ConfigError(str(error)) from error
    # The port is taken before a model is loaded for minutes, but opened only after.
    server = settings.config.server
    _raise_file_limit()
    # Threads that prepare large requests must let the event loop have its turn.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    tls = tls_context(server)
    with contextlib.ExitStack() as bound:
        listeners = bind(server)
        for listener in listeners:
            bound.enter_context(listener)
        _warn_of_open_port(server, listeners)
        try:
            return uvloop.run(_serve(settings, listeners, tls))
        except LlgtrtError as error:
            raise ConfigError(str(error)) from error


def trtllm_plugin_sources() -> list[tuple[str, str]]:
    """Path and text of every file that the TensorRT-LLM plugin is built from."""
    return plugin_sources()


def build_services(
    settings: Settings,
    engine: AsyncEngine,
    template: ChatTemplate,
    processor: ProcessorPool | None = None,
    validate_threads: ThreadPoolExecutor | None = None,
    token_threads: ThreadPoolExecutor | None = None,
    hook: HookRunner | None = None,
    telemetry: RequestTelemetry | None = None,
) -> Services:
    """The use cases on a loaded engine."""
    server = settings.config.server
    info = engine.model_info
    model = ServedModel(
        settings.served_model_name,
        info.max_sequence_tokens,
        info.adapters,
        any_name=server.any_model_name,
        other_names=server.model_names[1:],
        aliases=server.model_aliases,
    )
    compat = CompatMetrics(settings.config.metrics.compat, model.name, engine)
    metrics = HttpMetrics(compat.text)
    if hook is not None:
        hook.count_failure = metrics.hook_failure
    if processor is not None:
        metrics.gauge(
            "llgtrt_input_processor_requests",
            "Requests that the input processor works on, or that wait for it.",
            processor.calls,
        )
    store = ResponseStore(server.stored_responses, server.stored_response_bytes)
    metrics.gauge("llgtrt_stored_responses", "Responses kept for later requests.", lambda: store.count)
    metrics.gauge("llgtrt_stored_response_bytes", "What they take, in bytes.", lambda: store.size)
    limits = TokenLimits(
        max_n=server.max_n,
        default_max_tokens=server.default_max_tokens,
        clamp_max_tokens=server.max_tokens_beyond_context == "clamp",
    )
    completions = CompletionService(engine, model, limits=limits, receipts=server.receipt, hook=hook)
    tokens = TokenWork(engine, token_threads)
    chat = ChatService(
        engine,
        model,
        ChatPrompts(engine, template, processor),
        formats=AnswerFormats.of_model(engine, template.source, settings.config.tools.parser),
        limits=limits,
        receipts=server.receipt,
        tokens=tokens,
        hook=hook,
    )
    return Services(
        engine=engine,
        model=model,
        chat=chat,
        completions=completions,
        triton=TritonService(engine, model, completions, server.max_n),
        validate=ValidateService(engine, validate_threads),
        apis=(
            responses_api(chat, store, server.request_timeout_s),
            messages_api(chat),
            tokens_api(engine, model, chat, tokens),
        ),
        server=server,
        metrics=metrics,
        telemetry=telemetry,
    )


async def _serve(settings: Settings, listeners: list[socket.socket], tls: ssl.SSLContext | None) -> int:
    signals = Signals()
    asyncio.get_running_loop().set_default_executor(_threads("llgtrt-work", WORK_THREADS))
    # The file is run before the model is loaded: what is wrong with it shows at once.
    file = settings.input_processor
    kind = None if file is None else await asyncio.to_thread(load_processor_class, file)
    truss = settings.truss
    hook_name = settings.config.py.hooks
    hook_kind = None if hook_name is None else await asyncio.to_thread(load_hook, hook_name)
    # It changes the working folder, so it comes last.
    model_kind = None if truss is None else await asyncio.to_thread(load_model_class, truss)
    telemetry = _telemetry() if settings.config.server.otel else None
    engine = await AsyncEngine.load(native_config(settings))
    processor = hook = model = None
    code = 1
    try:
        template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
        if kind is not None and file is not None:
            processor = await start_processor(kind, file, settings, engine, template)
        if hook_kind is not None:
            hook = await start_hook(hook_kind, settings.config.py)
        validate_threads = _threads(VALIDATE_THREAD_NAME, MOST_REPORTS)
        token_threads = _threads(TOKEN_THREAD_NAME, TOKEN_THREADS, TOKEN_STACK)
        services = build_services(
            settings, engine, template, processor, validate_threads, token_threads, hook, telemetry
        )
        if model_kind is not None and truss is not None:
            model = await start_model(model_kind, truss, settings.config.py, services)
        _say_what_is_served(settings, services)
        # What was loaded so far stays for good: the garbage collector need not look at it again.
        gc.collect()
        gc.freeze()
        application = create_app(services, [] if model is None else [model.router])
        server = HttpServer(
            application, settings.config.server, listeners, tls, services.metrics.connection_refused
        )
        code = await server.run(engine, signals)
        return code
    finally:
        await _stop(engine, code)
        if telemetry is not None:
            await asyncio.to_thread(telemetry.shutdown)
        if hook is not None:
            await hook.finish()
        if processor is not None and not await asyncio.to_thread(processor.stop, PROCESSOR_STOP_S):
            exit_now(code, "the input processor does not return; leaving it behind")
        if model is not None and not await asyncio.to_thread(model.stop, PROCESSOR_STOP_S):
            exit_now(code, "model.py does not return; leaving it behind")
        if hook is not None and not await asyncio.to_thread(hook.stop, PROCESSOR_STOP_S):
            exit_now(code, "the hook does not return; leaving it behind")


def _threads(name: str, count: int, stack_bytes: int = 0) -> ThreadPoolExecutor:
    try:
        return started_threads(name, count, stack_bytes)
    except RuntimeError as error:
        raise ConfigError(f"cannot start {count} threads: {error} (ulimit -u and -v)") from error


def _telemetry() -> Telemetry:
    """OpenTelemetry, which is an extra.

    Raises:
        ConfigError: it is not installed, or a variable of it is wrong.
    """
    try:
        from llgtrt.api.telemetry import start_telemetry
    except ModuleNotFoundError as error:
        raise ConfigError(f"server.otel needs `pip install llgtrt[otel]`: {error}") from error
    try:
        return start_telemetry()
    except ValueError as error:
        raise ConfigError(str(error)) from error


async def _stop(engine: AsyncEngine, code: int) -> None:
    try:
        await asyncio.wait_for(engine.shutdown(), ENGINE_STOP_S)
    except asyncio.TimeoutError:
        # A thread that hangs in native code cannot be ended, and Python would wait for it.
        exit_now(code, "the engine does not stop; leaving it behind")


def _say_what_is_served(settings: Settings, services: Services) -> None:
    info = services.engine.model_info
    fields: dict[str, object] = {
        "version": __version__,
        "model": services.model.name,
        "engine": info.backend,
        "context_tokens": info.max_sequence_tokens,
        "slots": info.max_batch_size,
        "vocabulary": info.vocab_size,
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    if settings.model_path is not None:
        fields["file"] = str(settings.model_path)
    if services.server.default_max_tokens is not None:
        fields["default_max_tokens"] = services.server.default_max_tokens
    logger.info("loaded", extra={"fields": fields})


def _warn_of_open_port(server: ServerConfig, listeners: list[socket.socket]) -> None:
    if not server.keys and any(map(is_open_to_all, listeners)):
        logger.warning(
            "every machine that reaches this one may use the server: listen on 127.0.0.1 (--host), or set a "
            "key (LLGTRT_API_KEY)"
        )


def _raise_file_limit() -> None:
    """A connection is a file, and the usual soft limit of 1024 is meant for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
            logger.warning("only %d files may be open, and each connection is one (ulimit -n)", soft)
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    logger.debug("the limit of open files is raised from %d to %d", soft, wanted)
