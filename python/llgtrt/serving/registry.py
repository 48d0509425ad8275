"""The models of a process, found by the names that requests give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from llgtrt.config import ConfigError
from llgtrt.engine import AsyncEngine, LlgtrtError
from llgtrt.serving.chat import ChatService
from llgtrt.serving.completion import CompletionService
from llgtrt.serving.errors import ModelNotFoundError, RequestError, quote
from llgtrt.serving.models import ServedModel
from llgtrt.serving.tokens import TokenWork
from llgtrt.serving.triton import TritonService
from llgtrt.serving.validate import ValidateService


@dataclass(frozen=True, slots=True)
class ModelServices:
    """The use cases of one model.

    Attributes:
        metrics: its metrics in Prometheus' text format; with an argument every sample of a family of ours has
            the label ``model`` with that value.
    """

    engine: AsyncEngine
    model: ServedModel
    chat: ChatService
    completions: CompletionService
    triton: TritonService
    validate: ValidateService
    tokens: TokenWork
    metrics: Callable[[str | None], str]

    @property
    def health(self) -> tuple[str, str]:
        """State and explanation, as :meth:`AsyncEngine.health` gives them."""
        return self.engine.health()


class Models:
    """The models that are loaded. Used on the event loop only.

    Args:
        loaded: the models.
        several: whether there may be several. A server of one model takes every request for that model, which
            says itself which names it has; one of several picks the model by its name.
    """

    def __init__(self, loaded: Iterable[ModelServices] = (), *, several: bool = False) -> None:
        self.several = several
        self._loaded: dict[str, ModelServices] = {}
        self._draining = False
        for one in loaded:
            self.add(one)

    def __iter__(self) -> Iterator[ModelServices]:
        return iter(tuple(self._loaded.values()))

    def add(self, one: ModelServices) -> None:
        """Takes in a model; while the server shuts down it takes no requests.

        Raises:
            ConfigError: a name of it is that of another one.
        """
        for other in self:
            check_names(one.model, other.model)
        self._loaded[one.model.name] = one
        if self._draining:
            one.engine.begin_drain()

    def remove(self, one: ModelServices) -> None:
        """Requests that come from now on do not find the model."""
        if self._loaded.get(one.model.name) is one:
            del self._loaded[one.model.name]

    def get(self, name: str) -> ModelServices | None:
        """The model whose first name this is."""
        return self._loaded.get(name)

    def find(self, name: str | None) -> ModelServices:
        """The model that a request means.

        Raises:
            ModelNotFoundError: there is none of that name.
            RequestError: it gives no name, and there are several.
        """
        if not self.several:
            (only,) = self._loaded.values()
            return only
        fallback = None
        for one in self:
            if name and one.model.has(name):
                return one
            fallback = one if one.model.any_name else fallback
        if fallback is not None:
            return fallback
        known = [known for one in self for known in (one.model.name, *one.model.other_names)]
        if name:
            raise ModelNotFoundError(name, *known)
        raise RequestError(
            f"model: say which one: {', '.join(map(quote, known)) or 'none is loaded'}.", "model"
        )

    def resolve(self, name: str | None) -> ModelServices:
        """As :meth:`find`, and the name is one that the model answers to.

        Raises:
            ModelNotFoundError, RequestError: as there.
        """
        one = self.find(name)
        one.model.resolve(name)
        return one

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining

    @property
    def starts_slowly(self) -> bool:
        """Whether the start of a chat may take long."""
        return any(one.chat.starts_slowly for one in self)

    def health(self) -> tuple[str, str]:
        """State and explanation of the whole: that of the model that fares best."""
        if not self._loaded:
            return "draining" if self._draining else "ready", ""
        states = {one.model.name: one.health for one in self}
        for state in ("ready", "draining", "stalled", "failed"):
            found = [(name, why) for name, (is_, why) in states.items() if is_ == state]
            if found:
                return state, "; ".join(f"{name}: {why}" if self.several else why for name, why in found)
        return next(iter(states.values()))

    def active_requests(self) -> int:
        """Requests of all models that are not finished."""
        return sum(one.engine.active_requests() for one in self)

    def begin_drain(self) -> None:
        """Refuses new requests; running ones go on."""
        self._draining = True
        for one in self:
            one.engine.begin_drain()

    def abort(self, error: LlgtrtError) -> None:
        """Cancels every request of every model; each consumer sees ``error``."""
        for one in self:
            one.engine.abort(error)


def check_names(one: ServedModel, other: ServedModel) -> None:
    """Whether a request can tell two models apart.

    Raises:
        ConfigError: it cannot.
    """
    if one.any_name and other.any_name:
        raise ConfigError(f"models: {one.name} and {other.name} both take any name")
    shared = sorted(one.names & other.names)
    if shared:
        raise ConfigError(f"models: {one.name} and {other.name} are both called {shared[0]}")
