"""The shape of the native module: configuration, exceptions, reports."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from typing import Any

import pytest

from llgtrt import _native
from llgtrt.config import Config
from llgtrt.config.native import TOKENIZER_OPTIONS
from llgtrt.engine import Handover, ModelInfo, ServerFields
from llgtrt.hooks import PreparedInput
from llgtrt.serving import TokenLimits
from llgtrt.serving.core_request import core_request
from llgtrt.serving.protocol.fields import (
    EngineFields,
    ExtraSamplingFields,
    GenerationFields,
    RequestFields,
    RequestModel,
    SamplingFields,
)
from support.core import Core, engine_config
from support.fake_engine import MODEL_INFO


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
    with pytest.raises(_native.ConfigurationError, match="no_such_option") as caught:
        _native.Engine(json.dumps(config))
    assert caught.value.param == "sim.no_such_option"


def test_exception_tree() -> None:
    for kind in (
        _native.InvalidRequestError,
        _native.OverloadedError,
        _native.ShuttingDownError,
        _native.NotFiniteError,
        _native.LogitsProcessorError,
        _native.ForwardPassError,
        _native.EngineFailedError,
        _native.ConfigurationError,
        _native.InternalError,
    ):
        assert kind.__base__ is _native.LlgtrtError
    assert _native.ContextLengthError.__base__ is _native.InvalidRequestError
    assert _native.GrammarError.__base__ is _native.InvalidRequestError


OWN_FIELDS: dict[str, set[str]] = {
    # Text and token ids of the prompts, and the grammar, cross beside them.
    "": {"request", "extras"},
    "request": {
        *ServerFields.__annotations__,
        *RequestFields.model_fields,
        "sampling",
        "options",
        "handover",
    },
    # Chat and completions each have log-probabilities of their own.
    "request.sampling": {*SamplingFields.model_fields, "logprobs", "allowed_logprobs"},
    # What the server makes of other fields, see serving/core_request.py.
    "request.options": {
        *EngineFields.model_fields,
        *("sampling", "adapter", "cache_salt", "retention", "decode_retention"),
    },
    "request.options.adapter": {"name", "load"},
    "request.options.sampling": set(ExtraSamplingFields.model_fields),
    "request.options.retention": {"start", "end", "priority", "duration_ms"},
    # The state crosses beside it.
    "request.handover": {field.name for field in dataclasses.fields(Handover)} - {"state"},
    "extras": {field.name for field in dataclasses.fields(PreparedInput)} - {"tokens", "prompt"},
}
"""The objects of a request and their fields, as Python writes them."""


def test_rust_and_python_know_the_same_request_fields() -> None:
    fields = {path: set(names) for path, names in json.loads(_native.request_fields()).items()}
    assert fields == OWN_FIELDS


def test_each_field_of_a_request_has_one_place() -> None:
    names = Counter(
        name
        for path in ("request", "request.sampling", "request.options", "request.options.sampling")
        for name in OWN_FIELDS[path] - {"sampling"}
    )
    assert names.most_common(1)[0][1] == 1


@pytest.mark.parametrize(
    ("group", "path"),
    [
        (RequestFields, ()),
        (SamplingFields, ("sampling",)),
        (EngineFields, ("options",)),
        (ExtraSamplingFields, ("options", "sampling")),
    ],
)
def test_what_a_client_says_arrives_under_its_name(group: type[RequestModel], path: tuple[str, ...]) -> None:
    info = ModelInfo.parse(json.dumps({**MODEL_INFO, "prompt_logprobs": True}))
    for name in group.model_fields:
        asked = GenerationFields.model_validate({name: SAID[name]})
        fields = core_request(asked, info, TokenLimits(max_n=4)).fields
        for part in path:
            fields = fields[part]
        assert fields[name] == getattr(asked, name) is not None


SAID: dict[str, Any] = {
    "n": 3,
    "seed": -5,
    "stop": ["a", "b"],
    "stop_token_ids": [3, 4],
    "include_stop_str_in_output": True,
    "bad_words": ["no"],
    "at_limit": "cut",
    "return_removed_mass": True,
    "prompt_logprobs": 2,
    "return_token_ids": True,
    "temperature": 0.25,
    "top_p": 0.5,
    "top_k": 7,
    "min_p": 0.125,
    "presence_penalty": -1.5,
    "frequency_penalty": 1.5,
    "repetition_penalty": 1.25,
    "logit_bias": {"5": -3.5},
    "min_tokens": 6,
    "ignore_eos": True,
    "no_repeat_ngram_size": 4,
    "top_p_decay": 0.75,
    "top_p_min": 0.0625,
    "top_p_reset_ids": 9,
    "allotted_time_ms": 1000,
    "priority": 3,
}
"""A value that is no default, for each field that crosses under its own name."""


def test_requests_take_keywords_only_and_refuse_unknown_ones() -> None:
    with pytest.raises(TypeError):
        _native.GenerateRequest(b"{}", ["x"])  # type: ignore[call-arg]
    with pytest.raises(_native.InternalError, match="request"):
        _native.GenerateRequest(b"{}", prompts=["x"])
    with pytest.raises(_native.InternalError):
        _native.GenerateRequest(b"", prompts=["x"])
    with pytest.raises(ValueError, match="prompts"):
        _native.GenerateRequest(b'{"request": {}}', prompts=[])


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
