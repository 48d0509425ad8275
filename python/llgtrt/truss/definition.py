"""The methods of a model and what they are called with, read from their signatures once.

Annotations count as they are: one that is a text is not resolved, so ``request: "Request"`` is no request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request

from .errors import MethodNotImplementedError, ModelDefinitionError

ENDPOINTS = ("predict", "chat_completions", "completions", "embeddings", "messages", "responses")
"""Methods that have a route."""

_STEPS = ("preprocess", *ENDPOINTS, "postprocess")


class Takes(Enum):
    """What a method is called with."""

    NOTHING = "nothing"
    INPUTS = "inputs"
    REQUEST = "request"
    INPUTS_AND_REQUEST = "inputs and request"


@dataclass(frozen=True)
class Method:
    """A method of the model.

    Attributes:
        name: its name.
        call: the bound method.
        takes: its parameters.
        is_async: it is a coroutine function.
        is_generator: it is a generator or an asynchronous generator.
        input_type: the pydantic model that its first parameter is annotated with.
    """

    name: str
    call: Callable[..., Any]
    takes: Takes
    is_async: bool
    is_generator: bool
    input_type: type[BaseModel] | None

    @classmethod
    def of(cls, model: object, name: str) -> Method | None:
        """The method of that name, ``None`` if the model has none.

        Raises:
            ModelDefinitionError: its parameters are not of a known form.
        """
        call = getattr(model, name, None)
        if call is None:
            return None
        if not callable(call):
            raise ModelDefinitionError(f"`{name}` must be a method, not {type(call).__name__}")
        signature = inspect.signature(call)
        return cls(
            name=name,
            call=call,
            takes=_takes(name, signature),
            is_async=inspect.iscoroutinefunction(call),
            is_generator=inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call),
            input_type=_input_type(signature),
        )

    def arguments(self, inputs: Any, request: Request) -> tuple[Any, ...]:
        """What to call it with."""
        return {
            Takes.NOTHING: (),
            Takes.INPUTS: (inputs,),
            Takes.REQUEST: (request,),
            Takes.INPUTS_AND_REQUEST: (inputs, request),
        }[self.takes]


@dataclass(frozen=True)
class Definition:
    """The methods of a model, checked.

    Attributes:
        steps: those that requests go through, by name.
        is_healthy: its own check of its health.
        setup_environment: is told the environment.
        load: prepares it.
    """

    steps: dict[str, Method]
    is_healthy: Method | None
    setup_environment: Callable[..., Any] | None
    load: Callable[..., Any] | None

    @classmethod
    def of(cls, model: object) -> Definition:
        """Looks at a model.

        Raises:
            ModelDefinitionError: a method does not have the form that it should have.
        """
        found = ((name, Method.of(model, name)) for name in _STEPS)
        steps = {name: method for name, method in found if method is not None}
        is_healthy = Method.of(model, "is_healthy")
        if is_healthy is not None and is_healthy.takes is not Takes.NOTHING:
            raise ModelDefinitionError("`is_healthy` must have only one argument: `self`.")
        predict, postprocess = steps.get("predict"), steps.get("postprocess")
        if predict is None:
            raise ModelDefinitionError("Truss model must have a `predict` method.")
        if "preprocess" in steps and predict.takes is Takes.REQUEST:
            raise ModelDefinitionError(
                "When using `preprocess`, the `predict` method cannot only have the request argument "
                f"(because the result of `preprocess` would be discarded). Got: {_signature(predict)}"
            )
        if postprocess is not None and postprocess.takes is Takes.REQUEST:
            raise ModelDefinitionError(
                "The `postprocess` method cannot only have the request argument (because the result of "
                f"`predict` would be discarded). Got: {_signature(postprocess)}"
            )
        return cls(
            steps,
            is_healthy,
            getattr(model, "setup_environment", None),
            getattr(model, "load", None),
        )

    def endpoint(self, name: str) -> Method:
        """The method behind a route.

        Raises:
            MethodNotImplementedError: the model does not have it.
        """
        method = self.steps.get(name)
        if method is None:
            raise MethodNotImplementedError(f"`{name}` is not implemented by the model.")
        return method

    def first(self, name: str) -> Method:
        """The method that gets a request's body."""
        endpoint = self.endpoint(name)
        return self.steps.get("preprocess", endpoint) if name == "predict" else endpoint

    def reads_body(self, name: str) -> bool:
        """Whether the body is parsed: not where every method that could get it takes the request only."""
        return any(one.takes is not Takes.REQUEST for one in (self.endpoint(name), self.first(name)))


def is_request(annotation: Any) -> bool:
    """Whether a parameter is annotated as a request."""
    return isinstance(annotation, type) and issubclass(annotation, Request)


def _takes(name: str, signature: inspect.Signature) -> Takes:
    parameters = list(signature.parameters.values())
    if not parameters:
        return Takes.NOTHING
    if len(parameters) == 1:
        return Takes.REQUEST if is_request(parameters[0].annotation) else Takes.INPUTS
    if len(parameters) > 2:
        raise ModelDefinitionError(f"`{name}` method cannot have more than two arguments. Got: {signature}")
    first, second = parameters
    if is_request(first.annotation):
        raise ModelDefinitionError(
            f"`{name}` method with two arguments is not allowed to have request as first argument, request "
            f"must be second. Got: {signature}"
        )
    if not is_request(second.annotation):
        raise ModelDefinitionError(
            f"`{name}` method with two arguments must have request as second argument (type annotated). "
            f"Got: {signature}"
        )
    return Takes.INPUTS_AND_REQUEST


def _input_type(signature: inspect.Signature) -> type[BaseModel] | None:
    first = next(iter(signature.parameters.values()), None)
    annotation = None if first is None else first.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _signature(method: Method) -> str:
    return str(inspect.signature(method.call))
