"""The process: its log, memory, files and port, and the model's load, begun before the server is imported."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from llgtrt.api.listen import bind, is_open_to_all
from llgtrt.api.signals import Signals
from llgtrt.app.engine import EngineAhead
from llgtrt.config import ConfigError, Repository, ServerConfig, Settings, native_config, tls_context
from llgtrt.engine import (
    LlgtrtError,
    plugin_sources,
    process_rank,
    start_core_log,
    use_huge_pages,
    work_for_leader,
)
from llgtrt.logs import Levels
from llgtrt.threads import start_threads

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
    asyncio.get_running_loop().set_default_executor(start_threads("llgtrt-work"))
    ahead = None if repository is not None or _checks_first(settings) else EngineAhead(settings)
    try:
        # It takes half a second. A model is loaded meanwhile, mostly without the interpreter's lock.
        serve = await asyncio.to_thread(_import_server)
        return await serve(settings, repository, listeners, tls, signals, ahead)
    finally:
        if ahead is not None:
            await ahead.drop()


def _checks_first(settings: Settings) -> bool:
    """Whether something of the operator's comes before the model: what is wrong with it shows at once."""
    config = settings.config
    code = config.py
    return bool(
        settings.truss
        or settings.input_processor
        or code.hooks
        or code.engine
        or code.logits_processors
        or config.server.otel
    )


def _import_server() -> Callable[..., Coroutine[Any, Any, int]]:
    from llgtrt.app.serve import serve

    return serve


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
