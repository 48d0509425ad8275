"""From the settings of a server to a model that answers its requests."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from typing import Any

from fastapi import APIRouter

from llgtrt.api.services import Services
from llgtrt.config import PyConfig, Truss
from llgtrt.hooks.user_loop import UserLoop

from .definition import Definition
from .engine import Engine
from .loader import load_model, make_model
from .model import Model
from .routes import ModelService, model_router

logger = logging.getLogger("llgtrt.truss")

START_FAILED_S = 1.0
"""How long the threads of a model that cannot be loaded may keep the process that is to end."""


class RunningModel:
    """A model that serves.

    Attributes:
        router: its routes.
    """

    def __init__(self, loop: UserLoop, router: APIRouter) -> None:
        self._loop = loop
        self.router = router

    def stop(self, timeout_s: float) -> bool:
        """Ends its threads; false if its code does not return in time. Blocks."""
        return self._loop.stop(timeout_s)


async def start_model(kind: type[Any], truss: Truss, section: PyConfig, services: Services) -> RunningModel:
    """Builds and loads the model, on other threads: many load for minutes.

    Raises:
        ConfigError: it cannot be built or loaded.
    """
    engine = Engine(services, asyncio.get_running_loop())
    loop = UserLoop(section.model_threads, "llgtrt-model")
    stopping = threading.Event()
    try:
        _, definition = await loop.in_thread(
            make_model, kind, truss, engine, lambda work: loop.submit(work).result()
        )
        await _load(definition, truss, loop, stopping)
    except BaseException:
        stopping.set()
        await asyncio.to_thread(loop.stop, START_FAILED_S)
        raise
    model = Model(definition, loop, truss.predict_concurrency)
    service = ModelService(model, services, section.model_max_requests)
    services.metrics.gauge(
        "llgtrt_model_requests", "Requests that model.py works on.", lambda: service.requests
    )
    logger.info("model %s of %s", truss.class_name, truss.file)
    return RunningModel(loop, model_router(service))


async def _load(definition: Definition, truss: Truss, loop: UserLoop, stopping: threading.Event) -> None:
    load = definition.load
    if load is None:
        return
    if not inspect.iscoroutinefunction(load):
        await loop.in_thread(load_model, truss, load, stopping)
        return

    def load_there() -> None:
        loop.submit(load()).result()

    await loop.in_thread(load_model, truss, load_there, stopping)
