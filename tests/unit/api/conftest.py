"""The application on a fake engine."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI

from llgtrt.api.application import create_app
from llgtrt.api.context import RequestTelemetry
from llgtrt.app.services import build_services
from llgtrt.chat import load_chat_template
from llgtrt.config import Config, Settings
from support.fake_engine import AppFactory, FakeNativeEngine, fake_engine


@pytest.fixture
async def native() -> AsyncIterator[FakeNativeEngine]:
    fake = FakeNativeEngine()
    yield fake
    fake.close()


@pytest.fixture
async def make_app(native: FakeNativeEngine) -> AsyncIterator[AppFactory]:
    """Builds the application with some ``server`` options."""
    engine = fake_engine(native)

    def make(*, telemetry: RequestTelemetry | None = None, **server: Any) -> FastAPI:
        options = {"served_model_name": "fake", "ping_interval_s": 0.0, **server}
        settings = Settings(config=Config.model_validate({"server": options}), backend="sim")
        template = load_chat_template(settings, dataclasses.asdict(engine.model_info))
        return create_app(build_services(settings, engine, template, telemetry=telemetry))

    yield make
    await engine.shutdown()
