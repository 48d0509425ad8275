"""What an API is: routes over the use cases, its own request and answer forms, its own form of errors.

An API is one folder beside this file. It brings the requests into the terms of
:class:`~llgtrt.serving.protocol.ChatRequest` and writes the answers with an
:class:`~llgtrt.serving.output.Encoder`; ``llgtrt.api`` puts its routes on HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from llgtrt.engine import LlgtrtError, new_error
from llgtrt.serving.errors import Failure, ModelNotFoundError, RequestError
from llgtrt.serving.generation import Generation


@dataclass(frozen=True)
class GenerationRoute:
    """A POST route that answers with a generation.

    Attributes:
        path: its path.
        summary, answers: for the OpenAPI document: what it does, what it answers.
        request: the model of its body.
        start: the use case; raises what ``ChatService.start`` raises. Gives an object as JSON where there is
            nothing to wait for.
    """

    path: str
    summary: str
    answers: str
    request: type[BaseModel]
    start: Callable[[Any], Awaitable[Generation | bytes]]


@dataclass(frozen=True)
class ObjectRoute:
    """A route that answers with one JSON object, or with a list of them.

    Attributes:
        method, path: as HTTP has them; the path's names in braces are the arguments' names.
        summary, answers: for the OpenAPI document.
        answer: the use case. Gets the body, if there is one, else the arguments of the path and the query
            by name; gives the object as JSON.
        request: the model of its body; ``None``: there is none.
        query: names of the arguments in the query.
        other_paths: further paths, which the OpenAPI document does not show.
        slow: it ends when its client leaves, or after the time that a request may take.
        lists: it answers with a list.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    summary: str
    answers: str
    answer: Callable[[Any], Awaitable[bytes]]
    request: type[BaseModel] | None = None
    query: tuple[str, ...] = ()
    other_paths: tuple[str, ...] = ()
    slow: bool = False
    lists: bool = False


@dataclass(frozen=True)
class Api:
    """The routes of one API.

    Attributes:
        name: its tag in the OpenAPI document.
        routes: its routes.
        error: the form of its errors.
        error_paths: paths whose errors have that form, with all that is below them.
    """

    name: str
    routes: tuple[GenerationRoute | ObjectRoute, ...]
    error: Callable[[Failure], dict[str, Any]] = Failure.openai
    error_paths: tuple[str, ...] = ()


Arguments = Mapping[str, str]
"""What the path and the query of an :class:`ObjectRoute` hold."""


@dataclass
class Places:
    """Where the parts of a translated request come from: errors name them as the client does.

    Attributes:
        pairs: prefixes of paths in the translated request, and what they are in the client's. The first that
            fits counts.
    """

    pairs: list[tuple[str, str]] = field(default_factory=list)

    def add(self, inner: str, outer: str) -> None:
        """Notes a place; one that lies within another must come before it."""
        self.pairs.append((inner, outer))

    def outer(self, path: str) -> str:
        """The client's name of a path."""
        for inner, outer in self.pairs:
            if path == inner or path.startswith((f"{inner}.", f"{inner}[")):
                return outer + path[len(inner) :]
        return path

    def explain(self, error: Exception) -> Exception:
        """The error with the client's name of its field."""
        if not isinstance(error, RequestError | LlgtrtError) or isinstance(error, ModelNotFoundError):
            return error
        if error.param is None:
            return error
        param = self.outer(error.param)
        if param == error.param:
            return error
        message = error.message
        if message.startswith(error.param):
            message = param + message[len(error.param) :]
        if isinstance(error, LlgtrtError):
            return new_error(type(error), message, param)
        return type(error)(message, param, error.code)


async def explained(places: Places, starting: Awaitable[Generation]) -> Generation:
    """A generation whose errors, those of its start as well, name the client's fields."""
    try:
        generation = await starting
    except (RequestError, LlgtrtError) as error:
        renamed = places.explain(error)
        raise renamed from (None if renamed is error else error)
    inner = generation.explain
    generation.explain = lambda error: places.explain(inner(error))
    return generation
