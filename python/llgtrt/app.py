"""The composition root: loads the engine, opens the port, and ends the process in good order."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import socket
from pathlib import Path

import uvloop

from llgtrt.api import HttpMetrics, Services, create_app
from llgtrt.api.server import HttpServer, Signals, exit_now
from llgtrt.chat import ChatTemplate, load_chat_template
from llgtrt.config import ANY_NAME, ConfigError, ServerConfig, Settings, native_config
from llgtrt.engine import AsyncEngine, LlgtrtError, plugin_sources, process_rank, work_for_leader
from llgtrt.hooks import ProcessorPool, load_processor_class, start_processor
from llgtrt.serving import (
    AnswerFormats,
    ChatPrompts,
    ChatService,
    CompletionService,
    ServedModel,
    TokenLimits,
    ValidateService,
)

logger = logging.getLogger("llgtrt")

ENGINE_STOP_S = 4.0
"""An engine that failed and does not stop must not keep the process: it has to be gone within 10 s."""
PROCESSOR_STOP_S = 2.0
"""How long a call of the input processor that nobody waits for any more may keep the process."""


def run(settings: Settings) -> int:
    """Serves until a signal or the engine's end, and gives the exit code.

    Of several processes that run one TensorRT-LLM engine, the first serves and the others work for it.

    Raises:
        ConfigError: the port, the configuration or the model is unusable; no port was opened.
    """
    if settings.backend == "trtllm" and process_rank() > 0:
        try:
            return work_for_leader(native_config(settings))
        except LlgtrtError as error:
            raise ConfigError(str(error)) from error
    # The port is taken before a model is loaded for minutes, but opened only after.
    with _bind(settings.config.server) as listener:
        try:
            return uvloop.run(_serve(settings, listener))
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
) -> Services:
    """The use cases on a loaded engine."""
    server = settings.config.server
    info = engine.model_info
    model = ServedModel(
        settings.served_model_name,
        info.max_sequence_tokens,
        info.adapters,
        any_name=server.served_model_name == ANY_NAME,
    )
    metrics = HttpMetrics()
    if processor is not None:
        metrics.gauge(
            "llgtrt_input_processor_requests",
            "Requests that the input processor works on, or that wait for it.",
            processor.calls,
        )
    limits = TokenLimits(
        max_n=server.max_n,
        default_max_tokens=server.default_max_tokens,
        clamp_max_tokens=server.max_tokens_beyond_context == "clamp",
    )
    return Services(
        engine=engine,
        model=model,
        chat=ChatService(
            engine,
            model,
            ChatPrompts(engine, template, processor),
            formats=AnswerFormats.of_model(engine, template.source, settings.config.tools.parser),
            limits=limits,
        ),
        completions=CompletionService(engine, model, limits=limits),
        validate=ValidateService(engine),
        server=server,
        metrics=metrics,
    )


async def _serve(settings: Settings, listener: socket.socket) -> int:
    signals = Signals()
    # The file is run before the model is loaded: what is wrong with it shows at once.
    file = settings.input_processor
    kind = None if file is None else await asyncio.to_thread(load_processor_class, file)
    engine = await AsyncEngine.load(native_config(settings))
    processor = None
    code = 1
    try:
        template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
        if kind is not None and file is not None:
            processor = await start_processor(kind, file, settings, engine, template)
        services = build_services(settings, engine, template, processor)
        logger.info("serving %s with the %s engine", services.model.name, engine.model_info.backend)
        # What was loaded so far stays for good: the garbage collector need not look at it again.
        gc.collect()
        gc.freeze()
        server = HttpServer(create_app(services), settings.config.server, listener)
        code = await server.run(engine, signals)
        return code
    finally:
        await _stop(engine, code)
        if processor is not None and not await asyncio.to_thread(processor.stop, PROCESSOR_STOP_S):
            exit_now(code, "the input processor does not return; leaving it behind")


async def _stop(engine: AsyncEngine, code: int) -> None:
    try:
        await asyncio.wait_for(engine.shutdown(), ENGINE_STOP_S)
    except asyncio.TimeoutError:
        # A thread that hangs in native code cannot be ended, and Python would wait for it.
        exit_now(code, "the engine does not stop; leaving it behind")


def _bind(server: ServerConfig) -> socket.socket:
    try:
        return _bind_unix(server.uds) if server.uds is not None else _bind_tcp(server.host, server.port)
    except OSError as error:
        where = server.uds or f"{server.host}:{server.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from error


def _bind_tcp(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _bind_unix(path: str) -> socket.socket:
    if Path(path).is_socket():
        Path(path).unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    return listener
