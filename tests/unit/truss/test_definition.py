"""What a class may look like, and what its methods are called with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import Request as FastApiRequest
from pydantic import BaseModel
from starlette.requests import Request

from llgtrt.truss.definition import Definition, Method, Takes
from llgtrt.truss.errors import MethodNotImplementedError, ModelDefinitionError


class Inputs(BaseModel):
    a: int


def method(function: Any) -> Method:
    """The method of an object that has this function as ``predict``, with real annotations."""
    for name, text in list(getattr(function, "__annotations__", {}).items()):
        function.__annotations__[name] = eval(text) if isinstance(text, str) else text
    kind = type("Model", (), {"predict": function})
    found = Method.of(kind(), "predict")
    assert found is not None
    return found


class SubRequest(Request):
    pass


def nothing(self: Any) -> None: ...
def untyped(self, a): ...  # type: ignore[no-untyped-def]
def request_only(self: Any, a: Request) -> None: ...
def fastapi_request_only(self: Any, a: FastApiRequest) -> None: ...
def sub_request_only(self: Any, a: SubRequest) -> None: ...
def both(self: Any, a: dict[str, Any], b: Request) -> None: ...
def first_untyped(self, a, b: Request): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (nothing, Takes.NOTHING),
        (untyped, Takes.INPUTS),
        (request_only, Takes.REQUEST),
        (fastapi_request_only, Takes.REQUEST),
        (sub_request_only, Takes.REQUEST),
        (both, Takes.INPUTS_AND_REQUEST),
        (first_untyped, Takes.INPUTS_AND_REQUEST),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_parameters_say_what_a_method_is_called_with(function: Any, takes: Takes) -> None:
    found = method(function)
    assert found.takes is takes
    request = Request({"type": "http"})
    expected = {
        Takes.NOTHING: (),
        Takes.INPUTS: (5,),
        Takes.REQUEST: (request,),
        Takes.INPUTS_AND_REQUEST: (5, request),
    }
    assert found.arguments(5, request) == expected[takes]


def request_first(self: Any, a: Request, b: Request) -> None: ...
def second_untyped(self, a, b): ...  # type: ignore[no-untyped-def]
def three(self, a, b: Request, c): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (request_first, "request as first argument"),
        (second_untyped, "must have request as second argument"),
        (three, "more than two arguments"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_other_parameters_are_an_error_that_names_method_and_signature(function: Any, words: str) -> None:
    with pytest.raises(ModelDefinitionError) as failure:
        method(function)
    assert isinstance(failure.value, TypeError)
    assert "`predict`" in str(failure.value)
    assert words in str(failure.value)
    assert "(a" in str(failure.value), "the signature"


def test_string_annotations_are_not_resolved() -> None:
    # This module's own annotations are texts.
    class Model:
        def predict(self, request: Request) -> None: ...

    found = Method.of(Model(), "predict")
    assert found is not None
    assert found.takes is Takes.INPUTS

    class Two:
        def predict(self, a: Any, request: Request) -> None: ...

    with pytest.raises(ModelDefinitionError, match="second argument"):
        Definition.of(Two())


def test_kinds_of_functions() -> None:
    class Model:
        def predict(self) -> None: ...
        async def completions(self) -> None: ...
        def messages(self) -> Iterator[int]:
            yield 1

        async def responses(self) -> AsyncIterator[int]:
            yield 1

    steps = Definition.of(Model()).steps
    assert {name: (one.is_async, one.is_generator) for name, one in steps.items()} == {
        "predict": (False, False),
        "completions": (True, False),
        "messages": (False, True),
        "responses": (False, True),
    }


def test_predict_is_mandatory_also_for_chat_only_models() -> None:
    class Model:
        async def chat_completions(self, body: Any) -> None: ...

    with pytest.raises(ModelDefinitionError, match="must have a `predict`"):
        Definition.of(Model())


def test_what_would_be_discarded_is_an_error() -> None:
    def takes_request(self: Any, request: Any) -> None: ...

    takes_request.__annotations__["request"] = Request

    def takes_inputs(self: Any, inputs: Any) -> None: ...

    with pytest.raises(ModelDefinitionError, match="`preprocess` would be discarded"):
        Definition.of(type("M", (), {"preprocess": takes_inputs, "predict": takes_request})())
    with pytest.raises(ModelDefinitionError, match="`predict` would be discarded"):
        Definition.of(type("M", (), {"predict": takes_inputs, "postprocess": takes_request})())


def test_is_healthy_takes_nothing_and_methods_are_callable() -> None:
    class Model:
        def predict(self, a: Any) -> None: ...
        def is_healthy(self, a: Any) -> bool:
            return True

    with pytest.raises(ModelDefinitionError, match="is_healthy"):
        Definition.of(Model())
    with pytest.raises(ModelDefinitionError, match="must be a method"):
        Definition.of(type("M", (), {"predict": 5})())


def test_which_body_is_read() -> None:
    def takes_request(self: Any, request: Any) -> None: ...

    takes_request.__annotations__["request"] = Request

    def takes_inputs(self: Any, inputs: Any) -> None: ...

    takes_inputs.__annotations__["inputs"] = Inputs

    def definition(**methods: Any) -> Definition:
        return Definition.of(type("M", (), methods)())

    assert not definition(predict=takes_request).reads_body("predict")
    assert definition(predict=takes_inputs).reads_body("predict")
    assert definition(preprocess=takes_request, predict=takes_inputs).reads_body("predict")
    mixed = definition(predict=takes_request, chat_completions=takes_inputs)
    assert mixed.reads_body("chat_completions")
    assert mixed.first("chat_completions").input_type is Inputs
    assert definition(preprocess=takes_inputs, predict=nothing).first("predict").input_type is Inputs
    with pytest.raises(MethodNotImplementedError, match="`embeddings`"):
        mixed.endpoint("embeddings")
