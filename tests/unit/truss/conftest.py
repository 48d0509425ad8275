"""Models as classes, behind the application on a fake engine."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI

from llgtrt.api.application import create_app
from llgtrt.api.services import Services
from llgtrt.app.services import build_services
from llgtrt.chat import load_chat_template
from llgtrt.config import Config, Settings
from llgtrt.hooks.user_loop import UserLoop
from llgtrt.truss.definition import Definition
from llgtrt.truss.engine import Engine
from llgtrt.truss.model import Model
from llgtrt.truss.routes import ModelService, model_router
from support.asgi import AsgiCall
from support.fake_engine import FakeNativeEngine, fake_engine

PREDICT = "/v1/models/anything:predict"

ServeModel = Callable[..., FastAPI]
"""Builds the application around an instance of a class, made with the engine if its constructor takes one."""


@pytest.fixture
async def native() -> AsyncIterator[FakeNativeEngine]:
    fake = FakeNativeEngine()
    yield fake
    fake.close()


@pytest.fixture
async def services(native: FakeNativeEngine) -> AsyncIterator[Services]:
    engine = fake_engine(native)
    options = {"served_model_name": "fake", "max_body_bytes": 10_000}
    settings = Settings(config=Config.model_validate({"server": options}), backend="sim")
    template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
    yield build_services(settings, engine, template)
    await engine.shutdown()


@pytest.fixture
async def serve(services: Services) -> AsyncIterator[ServeModel]:
    loops: list[UserLoop] = []

    def make(
        kind: Callable[..., Any], *, threads: int = 4, predict_concurrency: int = 1, most_requests: int = 10
    ) -> FastAPI:
        loop = UserLoop(threads, "llgtrt-model")
        loops.append(loop)
        engine = Engine(services, asyncio.get_running_loop())
        takes_engine = "engine" in inspect.signature(kind).parameters
        instance = kind(engine) if takes_engine else kind()
        model = Model(Definition.of(instance), loop, predict_concurrency)
        return create_app(services, [model_router(ModelService(model, services, most_requests))])

    yield make
    for loop in loops:
        assert await asyncio.to_thread(loop.stop, 5.0), "the model's code does not end"


async def post(app: FastAPI, body: Any = None, path: str = PREDICT, **headers: str) -> AsgiCall:
    """A finished request."""
    given = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await AsgiCall(app, path, {} if body is None else body, headers=given).done()


def error(call: AsgiCall, status: int) -> str:
    """The message of an error in Truss's form."""
    assert call.status == status, call.body
    body = call.json()
    assert set(body) == {"error"}
    message: str = body["error"]
    return message
