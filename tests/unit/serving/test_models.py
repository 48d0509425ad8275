"""Names of the served model."""

from __future__ import annotations

import pytest

from llgtrt.config import ConfigError
from llgtrt.serving import ModelNotFoundError, ServedModel


@pytest.mark.parametrize("name", [None, ""])
def test_no_name_is_the_served_model(name: str | None) -> None:
    assert ServedModel("m", 10).resolve(name) == "m"


def test_the_error_names_the_served_model() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        ServedModel("m", 10).resolve("gpt-4o")
    assert caught.value.message == "The model 'gpt-4o' does not exist; this server has 'm'."


def test_any_name_may_be_the_served_model_but_an_adapter_stays_one() -> None:
    model = ServedModel("m", 10, ("lora",), any_name=True)
    assert model.resolve("gpt-4o") == "gpt-4o"
    assert model.adapter("gpt-4o", None) is None
    assert model.adapter("gpt-4o", "lora") == "lora"
    assert model.adapter("lora", None) == "lora"
    assert [one["id"] for one in model.objects()] == ["m", "lora"]


def test_several_names_of_one_model() -> None:
    model = ServedModel("m", 10, ("lora",), other_names=("n",), aliases={"gpt-4o": "n", "tuned": "lora"})
    assert [model.resolve(name) for name in ("m", "n", "gpt-4o", "tuned")] == ["m", "m", "m", "lora"]
    assert model.adapter(model.resolve("tuned"), None) == "lora"
    assert [(one["id"], one["root"]) for one in model.objects()] == [("m", "m"), ("n", "m"), ("lora", "m")]
    with pytest.raises(ModelNotFoundError):
        model.resolve("gpt-4")


@pytest.mark.parametrize(("aliases", "words"), [({"a": "x"}, "no model or adapter"), ({"n": "m"}, "already")])
def test_an_alias_stands_for_something(aliases: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServedModel("m", 10, other_names=("n",), aliases=aliases)
