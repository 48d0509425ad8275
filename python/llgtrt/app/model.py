"""One loaded model: its engine, the operator's code around it, and the end of both."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llgtrt.api.metrics import HttpMetrics
from llgtrt.app.engine import EngineAhead, load_engine, stop_engine
from llgtrt.app.services import Threads, model_services
from llgtrt.chat import load_chat_template
from llgtrt.config import ConfigError, MetricNames, PyConfig, Settings
from llgtrt.config.memory import memory_need
from llgtrt.engine import __version__
from llgtrt.hooks import (
    HookRunner,
    InputProcessor,
    LogitsProcessors,
    ProcessorPool,
    load_engine_class,
    load_hook,
    load_processor_class,
    make_engine,
    start_hook,
    start_processor,
)
from llgtrt.serving import ModelServices

logger = logging.getLogger("llgtrt")

CODE_STOP_S = 2.0
"""How long a call of the operator's Python that nobody waits for any more may keep the process."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all models of a process have in common.

    Attributes:
        hook: the hook of the configuration that all share, which every model has that names no other.
    """

    py: PyConfig
    compat: Sequence[MetricNames]
    metrics: HttpMetrics
    threads: Threads
    hook: HookRunner | None = None


@dataclass(frozen=True, slots=True)
class ModelCode:
    """The operator's classes, run before the model is loaded: what is wrong with them shows at once."""

    processor: type[InputProcessor] | None
    hook: type[Any] | None
    processors: LogitsProcessors
    engine: type[Any] | None

    @classmethod
    async def load(cls, settings: Settings, shared: PyConfig) -> ModelCode:
        """Runs the files that the settings name, but not that of the hook that all models share.

        Raises:
            ConfigError: one cannot be run, or holds no such class.
        """
        file, section = settings.input_processor, settings.config.py
        if (settings.backend == "python") != (section.engine is not None):
            raise ConfigError(
                "an engine in Python needs both: --backend python and its name (--engine-class, py.engine)"
            )
        hook = None if same_hook(section, shared) else section.hooks
        return cls(
            None if file is None else await asyncio.to_thread(load_processor_class, file),
            None if hook is None else await asyncio.to_thread(load_hook, hook),
            await asyncio.to_thread(LogitsProcessors.load, section),
            None if section.engine is None else await asyncio.to_thread(load_engine_class, section.engine),
        )


@dataclass(slots=True)
class LoadedModel:
    """A model that serves, with what has to be ended after it.

    Attributes:
        hook: its own; ``None`` where it has none or shares one.
    """

    services: ModelServices
    processor: ProcessorPool | None
    hook: HookRunner | None

    async def stop_code(self) -> str | None:
        """Ends the operator's code; what of it does not return, if anything."""
        return await stop_code(self.hook, self.processor)


async def load_model(
    settings: Settings, code: ModelCode, shared: Shared, ahead: EngineAhead | None = None
) -> LoadedModel:
    """Loads a model, unless its engine is loaded ahead, and starts the operator's code.

    Raises:
        ConfigError, LlgtrtError: the model or the configuration is unusable.
    """
    if ahead is not None:
        engine = await ahead.take()
    elif code.engine is not None:
        model = await asyncio.to_thread(make_engine, code.engine, settings.model_path, settings.config.py)
        engine = await load_engine(settings, model)
    else:
        engine = await load_engine(settings)
    processor = own_hook = None
    try:
        template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
        if code.processor is not None and settings.input_processor is not None:
            processor = await start_processor(
                code.processor, settings.input_processor, settings, engine, template
            )
        hook = shared.hook
        if not same_hook(settings.config.py, shared.py):
            hook = own_hook = await start_model_hook(code.hook, settings.config.py, shared.metrics)
        services = model_services(
            settings,
            engine,
            template,
            shared.compat,
            processor=processor,
            hook=hook,
            processors=code.processors,
            threads=shared.threads,
        )
    except BaseException:
        await stop_engine(engine)
        await stop_code(own_hook, processor)
        raise
    _say_what_is_served(settings, services)
    return LoadedModel(services, processor, own_hook)


async def start_model_hook(
    kind: type[Any] | None, section: PyConfig, metrics: HttpMetrics
) -> HookRunner | None:
    """The hook of a section, if it names one.

    Raises:
        ConfigError: its constructor fails.
    """
    if kind is None:
        return None
    hook = await start_hook(kind, section)
    hook.count_failure = metrics.hook_failure
    return hook


def same_hook(one: PyConfig, other: PyConfig) -> bool:
    """Whether two sections mean one hook: a limit or a ledger for all models is one object."""
    names = [name for name in PyConfig.model_fields if name.startswith("hooks")]
    return all(getattr(one, name) == getattr(other, name) for name in names)


async def stop_code(hook: HookRunner | None, processor: ProcessorPool | None) -> str | None:
    """Ends the operator's code; what of it does not return, if anything."""
    if hook is not None:
        await hook.finish()
    if processor is not None and not await asyncio.to_thread(processor.stop, CODE_STOP_S):
        return "the input processor"
    if hook is not None and not await asyncio.to_thread(hook.stop, CODE_STOP_S):
        return "the hook"
    return None


def _say_what_is_served(settings: Settings, services: ModelServices) -> None:
    info = services.engine.model_info
    fields: dict[str, object] = {
        "version": __version__,
        "model": services.model.name,
        "engine": info.backend,
        "context_tokens": info.max_sequence_tokens,
        "slots": info.max_batch_size,
        "vocabulary": info.vocab_size,
        **{name: value for name in ("device", "threads") if (value := getattr(info, name)) is not None},
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    with contextlib.suppress(ConfigError):
        need = memory_need(settings)
        if need is not None:
            fields["kv_cache_mb"] = need.cache >> 20
    if settings.model_path is not None:
        fields["file"] = str(settings.model_path)
    if (draft := settings.config.llamacpp.draft_model) is not None and settings.backend == "llamacpp":
        fields["draft_model"] = str(draft)
    if settings.config.server.default_max_tokens is not None:
        fields["default_max_tokens"] = settings.config.server.default_max_tokens
    logger.info("loaded", extra={"fields": fields})
