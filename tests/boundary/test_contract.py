"""The shape of the native module: configuration, exceptions, reports."""

from __future__ import annotations

import json
import re

import pytest

from llgtrt import _native
from llgtrt.config import Config
from llgtrt.config.native import TOKENIZER_OPTIONS
from support.core import Core, engine_config


@pytest.mark.parametrize("section", ["runtime", "llguidance", "llamacpp", "sim", "trtllm", "embedding"])
def test_rust_and_python_know_the_same_options(section: str) -> None:
    model = Config.model_fields[section].annotation
    assert model is not None
    assert sorted(json.loads(_native.config_fields())[section]) == sorted(model.model_fields)


def test_rust_knows_the_tokenizer_options_it_is_given() -> None:
    assert sorted(json.loads(_native.config_fields())["tokenizer"]) == sorted(TOKENIZER_OPTIONS)


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"backend": "sim"}'])
def test_a_configuration_that_is_not_one(config: str) -> None:
    with pytest.raises(_native.ConfigurationError) as caught:
        _native.Engine(config)
    assert caught.value.kind == "configuration"


def test_an_unknown_option_is_refused() -> None:
    config = json.loads(engine_config())
    config["sim"]["no_such_option"] = 1
    with pytest.raises(_native.ConfigurationError, match="no_such_option"):
        _native.Engine(json.dumps(config))


def test_exception_tree() -> None:
    for kind in (
        _native.InvalidRequestError,
        _native.OverloadedError,
        _native.ShuttingDownError,
        _native.NotFiniteError,
        _native.EngineFailedError,
        _native.ConfigurationError,
        _native.InternalError,
    ):
        assert kind.__base__ is _native.LlgtrtError
    assert _native.ContextLengthError.__base__ is _native.InvalidRequestError
    assert _native.GrammarError.__base__ is _native.InvalidRequestError


def test_requests_take_keywords_only_and_refuse_unknown_ones() -> None:
    with pytest.raises(TypeError):
        _native.GenerateRequest(["x"])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        _native.GenerateRequest(prompts=["x"], temprature=1.0)  # type: ignore[call-arg]


def test_model_info(core: Core) -> None:
    info = json.loads(core.engine.model_info)
    assert info["backend"] == "sim"
    assert info["vocab_size"] > 256
    assert info["max_batch_size"] >= 1
    assert isinstance(info["special_tokens"], list)


def test_health_and_drain(core: Core) -> None:
    assert core.engine.health()[0] == "ready"
    core.engine.begin_drain()
    assert core.engine.health()[0] == "draining"
    with pytest.raises(_native.ShuttingDownError):
        core.engine.reserve(1)


def test_metrics_count_tokens(core: Core) -> None:
    core.finish(core.submit(max_tokens=9, ignore_eos=True))
    core.finish(core.submit(grammar=_native.GrammarSpec.json_schema('{"const": "always the same words"}')))
    samples = dict(re.findall(r"^(llgtrt_\w+) (\S+)$", core.engine.metrics(), re.MULTILINE))
    generated, sampled, forced = (
        float(samples[f"llgtrt_{kind}_tokens_total"]) for kind in ("generation", "sampled", "forced")
    )
    assert forced > 0
    assert sampled >= 9
    assert sampled + forced == generated


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert _native.__version__ == version("llgtrt")
