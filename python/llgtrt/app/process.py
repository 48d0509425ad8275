"""The process: what is there before the first model is loaded, and what is ended after the last request."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import socket
import ssl
import sys
from typing import TYPE_CHECKING

import uvloop

from llgtrt.api import HttpMetrics, create_app
from llgtrt.api.listen import bind, is_open_to_all
from llgtrt.api.server import HttpServer, Signals, exit_now
from llgtrt.api.services import ModelLoadError
from llgtrt.app.model import CODE_STOP_S, ModelCode, Shared, start_model_hook, stop_code
from llgtrt.app.repository import LoadedModels
from llgtrt.app.services import Threads, server_services, start_threads
from llgtrt.config import ConfigError, Repository, ServerConfig, Settings, native_config, tls_context
from llgtrt.engine import (
    LlgtrtError,
    plugin_sources,
    process_rank,
    start_core_log,
    use_huge_pages,
    work_for_leader,
)
from llgtrt.hooks import load_hook
from llgtrt.logs import Levels
from llgtrt.serving.offload import MOST_THREADS as WORK_THREADS
from llgtrt.truss import load_model_class, start_model

if TYPE_CHECKING:
    from llgtrt.api.telemetry import Telemetry

logger = logging.getLogger("llgtrt")

MOST_FILES = 65_536
"""What the limit of open files is raised to, as far as it may be."""
FEW_FILES = 512
SWITCH_INTERVAL_S = 0.001
"""How long a thread may go on when the event loop wants its turn; Python's default is five times that."""
MALLOC_OPTIONS = {-8: 2, -3: 256 * 1024, -1: 256 * 1024}
"""Of glibc's ``mallopt``: M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD (malloc.h). Bodies of requests
are Python's and so glibc's. By itself it has an arena for every thread, and after the first large body it
takes room for later ones from its heaps, where a small object behind them keeps it: 8 MB of 129 after 140
rounds of the soak's load."""


def run(settings: Settings, repository: Repository | None = None) -> int:
    """Serves until a signal or the engine's end, and gives the exit code.

    Without a repository the settings are those of the one model. Of several processes that run one
    TensorRT-LLM engine, the first serves and the others work for it.

    Raises:
        ConfigError: the port, the configuration or the model is unusable; no port was opened.
    """
    _set_up_memory()
    start_core_log(
        Levels.parse(settings.log_level).core(), json_lines=settings.config.server.log_format == "json"
    )
    if repository is not None and process_rank() > 0:
        raise ConfigError("several models are served by one process, not by those of mpirun")
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
            return uvloop.run(_serve(settings, repository, listeners, tls))
        except LlgtrtError as error:
            raise ConfigError(str(error)) from error


def trtllm_plugin_sources() -> list[tuple[str, str]]:
    """Path and text of every file that the TensorRT-LLM plugin is built from."""
    return plugin_sources()


async def _serve(
    settings: Settings,
    repository: Repository | None,
    listeners: list[socket.socket],
    tls: ssl.SSLContext | None,
) -> int:
    signals = Signals()
    asyncio.get_running_loop().set_default_executor(start_threads("llgtrt-work", WORK_THREADS))
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
            await loaded.start(settings, own_code)
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


def _warn_of_open_port(server: ServerConfig, listeners: list[socket.socket]) -> None:
    if not server.keys and any(map(is_open_to_all, listeners)):
        logger.warning(
            "every machine that reaches this one may use the server: listen on 127.0.0.1 (--host), or set a "
            "key (LLGTRT_API_KEY)"
        )


def _set_up_memory() -> None:
    """Gives glibc's malloc its options, unless the environment has some or the C library is another one.

    Blocks that are mapped by themselves are on huge pages then, where they are large: each page costs time
    while all threads wait.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option, value in MALLOC_OPTIONS.items():
            library.mallopt(option, value)
        use_huge_pages()


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
