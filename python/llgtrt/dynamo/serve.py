"""Registers an engine with Dynamo's runtime and serves it until a signal or the engine's end.

The only module that imports Dynamo.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from llgtrt.chat import load_chat_template
from llgtrt.config import ConfigError, Settings, native_config
from llgtrt.dynamo.kv_events import RouterEvents, blocks_in_use
from llgtrt.dynamo.model_folder import model_end_tokens, write_model_folder
from llgtrt.dynamo.options import DynamoOptions
from llgtrt.dynamo.request import PROBE
from llgtrt.dynamo.worker import Worker
from llgtrt.engine import (
    AsyncEngine,
    EngineFailedError,
    LlgtrtError,
    ShuttingDownError,
    new_error,
    start_core_log,
)
from llgtrt.logs import Levels
from llgtrt.serving import AnswerFormats, ServedModel, TokenLimits
from llgtrt.threads import start_threads

try:
    from dynamo.llm import (
        FpmDirectPublisher,
        KvEventPublisher,
        ModelInput,
        ModelRuntimeConfig,
        ModelType,
        WorkerMetricsPublisher,
        WorkerType,
        register_model,
    )
    from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument, Unknown
    from dynamo.runtime import DistributedRuntime
except ModuleNotFoundError as error:
    raise ConfigError(f"`llgtrt dynamo` needs `pip install llgtrt[dynamo]`: {error}") from error

logger = logging.getLogger("llgtrt.dynamo")

EXIT_ENGINE_FAILED = 3
POLL_S = 0.05
HEALTH_POLL_S = 0.5
FORWARD_PASS_S = 0.25
"""How often the planner is told of the passes. It takes a second without a word for idleness."""
LAST_WORDS_S = 2.0
"""How long the last chunks of cancelled requests may take."""


def run(settings: Settings, options: DynamoOptions) -> int:
    """Serves until a signal or the engine's end, and gives the exit code.

    Raises:
        ConfigError: the configuration or the model is unusable, or the runtime cannot be reached.
    """
    json_lines = settings.config.server.log_format == "json"
    start_core_log(Levels.parse(settings.log_level).core(), json_lines=json_lines)
    try:
        return uvloop.run(_serve(settings, options))
    except LlgtrtError as error:
        raise ConfigError(str(error)) from error


async def _serve(settings: Settings, options: DynamoOptions) -> int:
    asyncio.get_running_loop().set_default_executor(start_threads("llgtrt-work"))
    stop = _stop_signal()
    block_size = options.block_size if caches_prefixes(settings) and options.kv_events else None
    engine = await AsyncEngine.load(native_config(settings, block_size))
    try:
        template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
        if options.model_folder is None:
            root = Path(tempfile.gettempdir())
            folder, ends = await asyncio.to_thread(
                write_model_folder, root, settings, engine, template.source
            )
        else:
            folder = options.model_folder.absolute()
            ends = await asyncio.to_thread(model_end_tokens, folder, engine)
        worker = Worker(
            engine,
            AnswerFormats.of_model(engine, template.source, settings.config.tools.parser),
            token_limits(settings),
            end_tokens=ends,
            raised=raised,
        )
        try:
            one = _Registered(settings, options, engine, worker, folder, block_size is not None)
            return await one.serve(stop)
        finally:
            worker.close()
    finally:
        await engine.shutdown()


def caches_prefixes(settings: Settings) -> bool:
    """Whether the engine keeps prefixes and tells of them."""
    config = settings.config
    if settings.backend == "sim":
        return config.sim.prefix_cache_tokens > 0
    runtime = config.runtime
    tells = settings.backend == "llamacpp" or runtime.event_buffer_max_size != 0
    return tells and runtime.enable_kv_cache_reuse


def token_limits(settings: Settings) -> TokenLimits:
    """How much requests may ask for: as of the server."""
    server = settings.config.server
    return TokenLimits(
        max_n=server.max_n,
        default_max_tokens=server.default_max_tokens,
        clamp_max_tokens=server.max_tokens_beyond_context == "clamp",
    )


def raised(error: Exception) -> BaseException:
    """The exception of Dynamo's that tells its frontend about an error.

    What the client has to change is its 400, with our text. Of the others the frontend gives the status only.
    """
    message, param = getattr(error, "message", str(error)), getattr(error, "param", None)
    text = f"{param}: {message}" if param and param not in message else message
    kind = error.kind if isinstance(error, LlgtrtError) else "invalid_request"
    made: BaseException
    if kind in ("invalid_request", "context_length", "grammar", "constraint"):
        made = InvalidArgument(text)
    elif kind == "overloaded":
        # Another worker may have room; one that is only busy must not be taken for dead, as any 503 would be.
        made = HttpError(429, text)
    elif kind in ("shutting_down", "engine_failed"):
        made = EngineShutdown(text)
    else:
        made = Unknown(text)
    return made


class _Registered:
    """One worker as an instance of an endpoint."""

    def __init__(
        self,
        settings: Settings,
        options: DynamoOptions,
        engine: AsyncEngine,
        worker: Worker,
        folder: Path,
        kv_events: bool,
    ) -> None:
        self._settings = settings
        self._options = options
        self._engine = engine
        self._worker = worker
        self._folder = folder
        self._kv_events = kv_events
        info = engine.model_info
        self._total_blocks = info.max_batch_size * -(-info.max_sequence_tokens // options.block_size)
        try:
            self._runtime = DistributedRuntime(
                asyncio.get_running_loop(),
                options.discovery,
                options.request_plane,
                event_plane=options.event_plane,
            )
            self._endpoint = self._runtime.endpoint(options.path)
        except Exception as error:
            raise ConfigError(f"Dynamo's runtime does not start: {error}") from error

    async def serve(self, stop: asyncio.Event) -> int:
        """Serves, and gives the exit code: 0 after a signal, another if the engine failed."""
        await self._publish_cache()
        await self._register()
        metrics = self._endpoint.metrics
        metrics.register_prometheus_expfmt_callback(self._engine.metrics)
        serving = asyncio.ensure_future(
            self._endpoint.serve_endpoint(
                self._worker.generate,
                graceful_shutdown=True,
                health_check_payload=self._probe(),
            )
        )
        failed = asyncio.ensure_future(_failure(self._engine))
        stopping = asyncio.ensure_future(stop.wait())
        telling = asyncio.ensure_future(self._publish_forward_passes())
        try:
            await asyncio.wait({serving, failed, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await self._leave(failed)
            self._runtime.shutdown()
            await serving
            if failed.done():
                logger.error("the engine failed: %s", failed.result())
                return EXIT_ENGINE_FAILED
            return 0
        finally:
            for one in (failed, stopping, telling):
                one.cancel()

    async def _register(self) -> None:
        info, options = self._engine.model_info, self._options
        config = ModelRuntimeConfig()
        config.context_length = info.max_sequence_tokens
        config.max_num_seqs = info.max_batch_size
        config.total_kv_blocks = self._total_blocks
        config.kv_event_publishing_enabled = self._kv_events
        # Routers that start later, or missed something, ask the worker for all that its cache holds.
        config.enable_local_indexer = self._kv_events
        optional = {
            "max_num_batched_tokens": self._settings.config.runtime.max_num_tokens,
            "tool_call_parser": options.tool_call_parser,
            "reasoning_parser": options.reasoning_parser,
        }
        for name, value in optional.items():
            # None is no value for them.
            if value is not None:
                setattr(config, name, value)
        names = self._settings.config.server.model_names
        model = ServedModel(
            self._settings.served_model_name, info.max_sequence_tokens, info.adapters, other_names=names[1:]
        )
        arguments: dict[str, Any] = {
            "worker_type": WorkerType.Aggregated,
            "kv_cache_block_size": options.block_size,
            "runtime_config": config,
        }
        kinds = ModelType.Chat | ModelType.Completions
        folder = str(self._folder)
        await register_model(
            ModelInput.Tokens,
            kinds,
            self._endpoint,
            folder,
            model.name,
            model_aliases=list(model.other_names) or None,
            **arguments,
        )
        for adapter in model.adapters:
            await register_model(
                ModelInput.Tokens,
                kinds,
                self._endpoint,
                folder,
                lora_name=adapter,
                base_model_path=folder,
                **arguments,
            )
        logger.info(
            "registered",
            extra={
                "fields": {
                    "endpoint": options.path,
                    "model": model.name,
                    "discovery": options.discovery,
                    "engine": info.backend,
                    "context_tokens": info.max_sequence_tokens,
                    "slots": info.max_batch_size,
                }
            },
        )

    async def _publish_cache(self) -> None:
        """Tells routers what the prefix cache holds, and how much of it is in use."""
        load = WorkerMetricsPublisher()
        await load.create_endpoint(self._endpoint)
        load.publish(0, kv_used_blocks=0)
        if not self._kv_events:
            return
        publisher = KvEventPublisher(
            self._endpoint, kv_block_size=self._options.block_size, enable_local_indexer=True
        )

        def used() -> int:
            return blocks_in_use(self._engine.kv_cache_usage(), self._total_blocks)

        def publish_used(blocks: int) -> None:
            load.publish(0, kv_used_blocks=blocks)

        self._engine.publish_kv_events(RouterEvents(publisher, self._options.block_size, used, publish_used))

    async def _publish_forward_passes(self) -> None:
        """Tells Dynamo's planner what the engine has done and has to do."""
        publisher = FpmDirectPublisher(self._endpoint, str(self._endpoint.connection_id()))
        try:
            while True:
                await asyncio.sleep(FORWARD_PASS_S)
                for figures in self._worker.forward_passes():
                    publisher.publish(dp_rank=0, **figures)
        finally:
            publisher.shutdown()

    def _probe(self) -> dict[str, Any]:
        tokens = self._engine.encode("Hello", True)
        return {
            "token_ids": tokens[:1],
            "stop_conditions": {"max_tokens": 1, "ignore_eos": True},
            "sampling_options": {"temperature": 0.0},
            PROBE: True,
        }

    async def _leave(self, failed: asyncio.Future[str]) -> None:
        """Takes the instance out of discovery, and finishes what was accepted unless it takes too long."""
        try:
            await self._endpoint.unregister_endpoint_instance()
        except Exception as error:
            logger.warning("the worker is not taken out of discovery: %s", error)
        if failed.done():
            self._engine.abort(new_error(EngineFailedError, "The engine failed."))
            await self._idle(LAST_WORDS_S)
            return
        # Frontends learn of it a little later: what they still send is served.
        logger.info("requests are accepted for %g s more", self._options.grace_s)
        await asyncio.wait({failed}, timeout=self._options.grace_s)
        self._engine.begin_drain()
        timeout_s = self._settings.config.server.drain_timeout_s
        if not await self._idle(timeout_s) and not failed.done():
            logger.warning("requests still run after %g s: cancelling them", timeout_s)
        self._engine.abort(new_error(ShuttingDownError, "The worker is shutting down."))
        await self._idle(LAST_WORDS_S)

    async def _idle(self, timeout_s: float) -> bool:
        """Waits for the end of all requests; false if that takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._worker.requests:
            if loop.time() >= deadline or self._engine.health()[0] == "failed":
                return False
            await asyncio.sleep(POLL_S)
        return True


async def _failure(engine: AsyncEngine) -> str:
    """Returns the explanation once the engine has failed."""
    while True:
        state, explanation = engine.health()
        if state == "failed":
            return explanation
        await asyncio.sleep(HEALTH_POLL_S)


def _stop_signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. The second ends the process by the signal itself."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def receive(number: signal.Signals) -> None:
        logger.info("%s: draining", number.name)
        stop.set()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, receive, number)
    return stop
