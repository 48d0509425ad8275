"""How a model's makers want it sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import Config, ConfigError, Settings
from llgtrt.config.generation import SamplingDefaults, sampling_defaults
from llgtrt.engine import ModelInfo
from llgtrt.serving import ChatRequest, TokenLimits
from llgtrt.serving.core_request import core_request
from support.fake_engine import MODEL_INFO


def defaults_of(
    folder: Path | None, metadata: dict[str, str] | None = None, **server: Any
) -> SamplingDefaults:
    settings = Settings(config=Config.model_validate({"server": server}), model_folder=folder)
    return sampling_defaults(settings, metadata or {})


def write(folder: Path, content: Any) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(content))
    return folder


def test_without_a_file_they_are_openais(tmp_path: Path) -> None:
    assert defaults_of(None) == defaults_of(tmp_path) == SamplingDefaults(1.0, 0, 1.0, 0.0, 1.0)


def test_the_file_says_them(tmp_path: Path) -> None:
    folder = write(
        tmp_path, {"temperature": 0.6, "top_k": 20, "eos_token_id": [1], "do_sample": True, "min_p": None}
    )
    assert defaults_of(folder) == SamplingDefaults(temperature=0.6, top_k=20)
    assert defaults_of(folder, generation_config="none") == SamplingDefaults()


def test_a_gguf_file_says_them_too(tmp_path: Path) -> None:
    metadata = {"general.sampling.temp": "0.700000", "general.sampling.top_k": "40", "general.name": "x"}
    assert defaults_of(None, metadata) == SamplingDefaults(temperature=0.7, top_k=40)
    # A file beside it wins, value by value.
    folder = write(tmp_path, {"top_k": 5, "repetition_penalty": 1.05})
    assert defaults_of(folder, metadata) == SamplingDefaults(0.7, 5, repetition_penalty=1.05)


def test_what_cannot_be_used_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path, {"temperature": "warm", "top_k": -3, "top_p": True, "min_p": 0.1})
    assert defaults_of(folder) == SamplingDefaults(min_p=0.1)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [message.split(": ")[1].split(" ")[0] for message in warned] == ["temperature", "top_k", "top_p"]
    for text in ("{", "[]"):
        (tmp_path / "generation_config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"generation_config\.json"):
            defaults_of(tmp_path)


def test_what_a_request_says_wins() -> None:
    defaults = SamplingDefaults(0.6, 20, 0.95, 0.05, 1.1)
    messages = [{"role": "user", "content": "x"}]

    def arguments(**fields: Any) -> tuple[Any, ...]:
        asked = ChatRequest(messages=messages, **fields)
        info = ModelInfo.parse(json.dumps(MODEL_INFO))
        made = core_request(asked, info, TokenLimits(1), defaults).fields["sampling"]
        return made["temperature"], made["top_k"], made["top_p"], made["min_p"], made["repetition_penalty"]

    assert arguments() == (0.6, 20, 0.95, 0.05, 1.1)
    said = {"temperature": 0.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert arguments(**said) == (0.0, 0, 1.0, 0.0, 1.0)
    assert arguments(repeat_penalty=1.3)[4] == 1.3
