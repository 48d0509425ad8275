"""Which model a request means, and how a server of several fares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from llgtrt.config import ConfigError
from llgtrt.serving import ModelNotFoundError, Models, ModelServices, RequestError, ServedModel


def loaded(name: str, **fields: Any) -> ModelServices:
    """A model whose engine says what a test sets."""
    engine = SimpleNamespace(state=("ready", "serving"), active=0, drained=False, aborted=[])
    engine.health = lambda: engine.state
    engine.active_requests = lambda: engine.active
    engine.begin_drain = lambda: vars(engine).update(drained=True, state=("draining", ""))
    engine.abort = engine.aborted.append
    rest = dict.fromkeys(("chat", "completions", "triton", "validate", "tokens", "metrics"))
    return ModelServices(engine=engine, model=ServedModel(name, 10, **fields), **rest)  # type: ignore[arg-type]


def engine_of(one: ModelServices) -> Any:
    return cast(Any, one.engine)


def test_one_model_takes_every_request() -> None:
    one = loaded("a")
    models = Models([one])
    for name in (None, "", "a", "b"):
        assert models.find(name) is one, "the model itself says which names it has"


def test_several_are_told_apart_by_all_their_names() -> None:
    a, b = loaded("a", adapters=("lora",)), loaded("b", other_names=("c",), aliases={"alias": "c"})
    models = Models([a, b], several=True)
    for name, one in {"a": a, "lora": a, "b": b, "c": b, "alias": b}.items():
        assert models.find(name) is one
    assert (models.get("b"), models.get("c")) == (b, None)
    with pytest.raises(ModelNotFoundError, match="'d' does not exist; this server has 'a', 'b', 'c'"):
        models.find("d")
    for nothing in (None, ""):
        with pytest.raises(RequestError, match="say which one: 'a', 'b', 'c'") as error:
            models.find(nothing)
        assert error.value.param == "model"
    models.remove(a)
    with pytest.raises(ModelNotFoundError):
        models.find("lora")
    models.remove(a)
    models.remove(b)
    with pytest.raises(ModelNotFoundError, match="this server has none"):
        models.find("b")


def test_an_error_names_no_more_than_is_readable() -> None:
    models = Models([loaded(f"m{number}") for number in range(100)], several=True)
    with pytest.raises(ModelNotFoundError, match="'m19' and 80 more") as error:
        models.find("x")
    assert "'m20'" not in str(error.value)


def test_names_are_unique() -> None:
    models = Models([loaded("a", aliases={"alias": "a"})], several=True)
    for fields in (
        {"name": "alias"},
        {"name": "b", "other_names": ("a",)},
        {"name": "b", "adapters": ("a",)},
    ):
        with pytest.raises(ConfigError, match="both called"):
            models.add(loaded(**fields))
    models.add(loaded("b", any_name=True))
    with pytest.raises(ConfigError, match="both take any name"):
        models.add(loaded("c", any_name=True))
    assert models.find("whatever") is models.find(None) is models.get("b")


def test_the_whole_fares_as_the_best_of_them() -> None:
    a, b = loaded("a"), loaded("b")
    models = Models([a, b], several=True)
    assert models.health()[0] == "ready"
    engine_of(a).state = ("failed", "step 7")
    assert models.health() == ("ready", "b: serving")
    engine_of(b).state = ("stalled", "no step")
    assert models.health() == ("stalled", "b: no step")
    engine_of(b).state = ("failed", "step 9")
    assert models.health() == ("failed", "a: step 7; b: step 9")
    assert Models([a]).health() == ("failed", "step 7")
    assert Models(several=True).health() == ("ready", "")


def test_draining_is_for_all_and_for_those_that_come_later() -> None:
    a, b = loaded("a"), loaded("b")
    models = Models([a], several=True)
    engine_of(a).active = 2
    assert models.active_requests() == 2
    models.begin_drain()
    models.add(b)
    assert engine_of(a).drained
    assert engine_of(b).drained
    assert models.health()[0] == "draining"
    engine_of(a).state = engine_of(b).state = ("failed", "")
    assert models.health()[0] == "failed", "also while draining"
    models.abort(cast(Any, "error"))
    assert engine_of(a).aborted == engine_of(b).aborted == ["error"]
    models.remove(a)
    models.remove(b)
    assert models.health() == ("draining", "")
