"""The loaded models of a process, and loading and unloading them while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from llgtrt.api.services import KnownModel, ModelLoadError
from llgtrt.app.engine import EngineAhead, stop_engine
from llgtrt.app.memory import check_memory
from llgtrt.app.model import LoadedModel, ModelCode, Shared, load_model
from llgtrt.config import ConfigError, ModelEntry, Repository, ServerConfig, Settings
from llgtrt.engine import EngineFailedError, LlgtrtError, ShuttingDownError, new_error
from llgtrt.serving import Models, NotFoundError
from llgtrt.serving.errors import quote

logger = logging.getLogger("llgtrt")

POLL_S = 0.05
"""How often to look whether the requests of a model that is unloaded are done."""
HEALTH_POLL_S = 0.25
"""How often to look whether an engine has failed."""
LAST_WORDS_S = 1.0
"""How long an engine that has failed may take to tell its requests by itself."""
UNKNOWN_MODEL = "model_not_found"


class LoadedModels:
    """Loads models and ends them; one at a time. Used on the event loop only.

    Args:
        server: limits of time, and whether memory is checked.
        shared: what all models have in common.
        repository: which there are; ``None`` for a server of one model.
    """

    def __init__(self, server: ServerConfig, shared: Shared, repository: Repository | None) -> None:
        self.models = Models(several=repository is not None)
        self._server = server
        self._shared = shared
        self._repository = repository
        self._loaded: dict[str, LoadedModel] = {}
        self._lock = asyncio.Lock()
        self._changing: dict[str, str] = {}
        """``LOADING`` or ``UNLOADING`` by name."""
        self._reasons: dict[str, str] = {}
        """Why models are not there, by name."""
        self._failed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self, settings: Settings, code: ModelCode, ahead: EngineAhead | None = None
    ) -> LoadedModel:
        """Loads a model, unless its engine is loaded ahead.

        Raises:
            ConfigError: the model or its configuration is unusable, or a name is taken.
            LlgtrtError: the engine cannot be started.
        """
        loaded = await load_model(settings, code, self._shared, ahead)
        try:
            self.models.add(loaded.services)
        except ConfigError:
            await stop_engine(loaded.services.engine)
            await loaded.stop_code()
            raise
        self._loaded[loaded.services.model.name] = loaded
        return loaded

    async def start_entry(self, entry: ModelEntry) -> None:
        """Loads one of several models, if there is memory for it.

        Raises:
            ConfigError: the model or its configuration is unusable, or a name is taken.
            ModelLoadError: there is not enough memory.
        """
        assert self._repository is not None
        settings = await asyncio.to_thread(self._repository.settings, entry)
        if self._server.check_memory:
            await asyncio.to_thread(check_memory, settings)
        code = await ModelCode.load(settings, self._shared.py)
        try:
            await self.start(settings, code)
        except LlgtrtError as error:
            raise ConfigError(f"model {entry.first_name}: {error}") from error

    async def index(self) -> list[KnownModel]:
        """Every model that can be loaded or is."""
        known = dict.fromkeys([*self._loaded, *await self._known()])
        return [self._entry(name) for name in known]

    async def load(self, name: str) -> None:
        """Loads a model; one that has failed is loaded anew, and one that works stays as it is.

        Raises:
            NotFoundError: no such model is known.
            ModelLoadError: it cannot be loaded.
        """
        await self._finish(self._load(name))

    async def _load(self, name: str) -> None:
        async with self._lock:
            entry = (await self._known()).get(name)
            if entry is None:
                raise _unknown(name, await self._known())
            loaded = self._loaded.get(name)
            if loaded is not None and loaded.services.health[0] != "failed":
                return
            if self.models.draining:
                raise ModelLoadError("The server is shutting down.")
            with self._change(name, "LOADING"):
                if loaded is not None:
                    await self._end(name, loaded)
                try:
                    await self.start_entry(entry)
                except ModelLoadError as error:
                    self._reasons[name] = error.message
                    raise
                except ConfigError as error:
                    self._reasons[name] = str(error)
                    raise ModelLoadError(str(error)) from error

    async def unload(self, name: str) -> None:
        """Lets a model's requests finish, for ``server.drain_timeout_s`` at most, and unloads it.

        Raises:
            NotFoundError: no such model is loaded.
        """
        await self._finish(self._unload(name))

    async def _unload(self, name: str) -> None:
        async with self._lock:
            loaded = self._loaded.get(name)
            if loaded is None:
                raise _unknown(name, self._loaded, "loaded")
            with self._change(name, "UNLOADING"):
                await self._end(name, loaded)
            self._reasons[name] = "unloaded"

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something to its end, also where nobody waits any more: half a model could not be ended."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    @property
    def is_changing(self) -> bool:
        """Whether a model is being loaded or unloaded."""
        return bool(self._tasks)

    async def watch(self) -> None:
        """Tells the requests of engines that fail, and the log; does not return."""
        while True:
            for name, loaded in list(self._loaded.items()):
                state, why = loaded.services.health
                if state == "failed" and name not in self._failed:
                    self._failed.add(name)
                    logger.error("the engine of the model %s failed: %s", name, why)
                    await asyncio.sleep(LAST_WORDS_S)
                    loaded.services.engine.abort(new_error(EngineFailedError, "The engine failed."))
            await asyncio.sleep(HEALTH_POLL_S)

    async def stop_engines(self) -> bool:
        """Ends all engines; false if one does not stop."""
        return all(await asyncio.gather(*(stop_engine(one.services.engine) for one in self._loaded.values())))

    async def stop_code(self) -> str | None:
        """Ends the operator's code; what of it does not return, if anything."""
        left = await asyncio.gather(*(one.stop_code() for one in self._loaded.values()))
        return next((what for what in left if what is not None), None)

    async def _end(self, name: str, loaded: LoadedModel) -> None:
        """Drains a model and frees what it holds."""
        engine = loaded.services.engine
        self.models.remove(loaded.services)
        engine.begin_drain()
        if not await _idle(loaded, 0.0 if name in self._failed else self._server.drain_timeout_s):
            logger.warning("requests to the model %s still run: cancelling them", name)
            engine.abort(new_error(ShuttingDownError, "The model is being unloaded."))
            await _idle(loaded, LAST_WORDS_S)
        del self._loaded[name]
        self._failed.discard(name)
        if not await stop_engine(engine):
            logger.error("the engine of the model %s does not stop: its memory is not free", name)
        if (what := await loaded.stop_code()) is not None:
            logger.error("%s of the model %s does not return; leaving it behind", what, name)
        logger.info("unloaded the model %s", name)
        # What was there at the start was exempted from the search for garbage.
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    async def _known(self) -> dict[str, ModelEntry]:
        assert self._repository is not None
        try:
            return await asyncio.to_thread(self._repository.known)
        except ConfigError as error:
            raise ModelLoadError(str(error)) from error

    def _entry(self, name: str) -> KnownModel:
        if (change := self._changing.get(name)) is not None:
            return KnownModel(name, change)
        if name in self._loaded:
            return KnownModel(name, "READY")
        return KnownModel(name, "UNAVAILABLE", self._reasons.get(name, ""))

    @contextlib.contextmanager
    def _change(self, name: str, state: str) -> Iterator[None]:
        self._changing[name] = state
        self._reasons.pop(name, None)
        try:
            yield
        finally:
            del self._changing[name]


async def _idle(loaded: LoadedModel, timeout_s: float) -> bool:
    """Waits for the end of a model's requests; false if that takes too long."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while loaded.services.engine.active_requests() > 0:
        if clock() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


def _unknown(
    name: str, known: dict[str, ModelEntry] | dict[str, LoadedModel], what: str = "known"
) -> Exception:
    names = ", ".join(map(quote, known)) or "none"
    return NotFoundError(f"No model {quote(name)} is {what} here, only {names}.", "model", UNKNOWN_MODEL)
