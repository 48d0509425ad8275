"""Serving: the operator's code, the models and the HTTP server around them, and their end."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from typing import TYPE_CHECKING

from llgtrt.api.application import create_app
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.server import HttpServer
from llgtrt.api.services import ModelLoadError
from llgtrt.api.signals import Signals, exit_now
from llgtrt.app.engine import EngineAhead
from llgtrt.app.model import CODE_STOP_S, ModelCode, Shared, start_model_hook, stop_code
from llgtrt.app.repository import LoadedModels
from llgtrt.app.services import Threads, server_services
from llgtrt.config import ConfigError, Repository, Settings
from llgtrt.hooks import load_hook
from llgtrt.truss import load_model_class, start_model

if TYPE_CHECKING:
    from llgtrt.api.telemetry import Telemetry


async def serve(
    settings: Settings,
    repository: Repository | None,
    listeners: list[socket.socket],
    tls: ssl.SSLContext | None,
    signals: Signals,
    ahead: EngineAhead | None,
) -> int:
    """Serves until a signal or the engine's end, and gives the exit code.

    Args:
        settings, repository: those of the one model, or what all of several share, and these.
        listeners, tls: bound sockets, and how connections are secured.
        signals: what ends the process.
        ahead: the one model's engine, if it is being loaded already.

    Raises:
        ConfigError, LlgtrtError: a model or its configuration is unusable.
    """
    config, truss = settings.config, settings.truss
    # The operator's files are run before a model is loaded: what is wrong with them shows at once.
    own_code = await ModelCode.load(settings, config.py) if repository is None else None
    hook_name = config.py.hooks
    hook_kind = None if hook_name is None else await asyncio.to_thread(load_hook, hook_name)
    # It changes the working folder, so it comes last.
    model_kind = None if truss is None else await asyncio.to_thread(load_model_class, truss)
    telemetry = _telemetry() if config.server.otel else None
    hook = loaded = model = watch = None
    code = 1
    try:
        metrics = HttpMetrics()
        hook = await start_model_hook(hook_kind, config.py, metrics)
        shared = Shared(config.py, config.metrics.compat, metrics, Threads.start(), hook)
        loaded = LoadedModels(config.server, shared, repository)
        services = server_services(
            config.server,
            loaded.models,
            metrics,
            telemetry=telemetry,
            repository=None if repository is None else loaded,
        )
        if repository is not None:
            for entry in repository.at_start():
                await loaded.start_entry(entry)
            watch = asyncio.ensure_future(loaded.watch())
        elif own_code is not None:
            await loaded.start(settings, own_code, ahead)
        if model_kind is not None and truss is not None:
            model = await start_model(model_kind, truss, config.py, services)
        application = create_app(services, [] if model is None else [model.router])
        server = HttpServer(application, config.server, listeners, tls, metrics.connection_refused)
        # What there is now stays for good: the garbage collector, which stops all threads, may pass it by.
        gc.collect()
        gc.freeze()
        code = await server.run(loaded.models, signals)
        return code
    except ModelLoadError as error:
        raise ConfigError(error.message) from error
    finally:
        if watch is not None:
            watch.cancel()
        if loaded is not None:
            if loaded.is_changing:
                exit_now(code, "a model is still being loaded or unloaded; leaving it behind")
            if not await loaded.stop_engines():
                # A thread that hangs in native code cannot be ended, and Python would wait for it.
                exit_now(code, "the engine does not stop; leaving it behind")
        if telemetry is not None:
            await asyncio.to_thread(telemetry.shutdown)
        left = None if loaded is None else await loaded.stop_code()
        if left is None and model is not None and not await asyncio.to_thread(model.stop, CODE_STOP_S):
            left = "model.py"
        left = left or await stop_code(hook, None)
        if left is not None:
            exit_now(code, f"{left} does not return; leaving it behind")


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
