"""A model.py for tests, in the form of a Truss's: what it does goes by the input."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request


class Model:
    def __init__(
        self,
        trt_llm: dict[str, Any],
        config: dict[str, Any],
        data_dir: Path,
        secrets: Mapping[str, str],
        environment: Any,
        lazy_data_resolver: Any,
    ) -> None:
        self._engine = trt_llm["engine"]
        self._secrets = secrets
        self._tries = 0
        self._loaded = False
        assert config["model_name"] == "test"
        assert data_dir == Path("data")
        lazy_data_resolver.block_until_download_complete()

    def setup_environment(self, environment: Any) -> None:
        assert not self._loaded

    def load(self) -> None:
        self._tries += 1
        if self._tries == 1:
            raise RuntimeError("not yet")
        self._loaded = True

    def is_healthy(self) -> bool:
        return not Path("ill").exists()

    async def predict(self, body: Any, request: Request) -> Any:
        do = body.get("do")
        if do == "state":
            return self.state()
        if do == "raise":
            raise RuntimeError("internals")
        if do == "exit":
            raise SystemExit(7)
        if do == "exit in a task":

            async def leave() -> None:
                raise SystemExit(7)

            await asyncio.wait({asyncio.ensure_future(leave())}, timeout=1)
            return None
        if do == "pay":
            raise HTTPException(402, "Pay first.")
        if do == "block the loop":
            return block()
        if do == "poll":
            return self.polled(body, request)
        return await self._engine.predict(body, request)

    def state(self) -> Any:
        return {
            "loaded": self._loaded,
            "tries": self._tries,
            "secret": self._secrets["token"],
            "data": Path("data/x").read_text(),
        }

    async def polled(self, body: Any, request: Request) -> Any:
        """The form of the documented cancellation: look whether the client is there, between two chunks."""
        response = await self._engine.chat_completions(request=request, model_input={**body, "stream": True})
        async for chunk in response.body_iterator:
            if await request.is_disconnected():
                break
            yield chunk

    def completions(self, body: Any) -> Any:
        # For ever, on a thread.
        Path("hanging").touch()
        threading.Event().wait()

    async def chat_completions(self, body: Any, request: Request) -> Any:
        return await self._engine.chat_completions(request=request, model_input=body)


def block() -> None:
    """For ever, without a wait that an event loop knows of."""
    Path("started").touch()
    threading.Event().wait()
