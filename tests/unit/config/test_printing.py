"""``--print-config``: readable, complete, and without effect when it is given back."""

from pathlib import Path
from typing import Any

import json5
import pytest
from hypothesis import HealthCheck, given, settings

from llgtrt.config import Config, print_config
from llgtrt.config.files import PATH_OPTIONS, PATHS_OF_MODEL, option_paths, read_config_file

from .strategies import raw_section


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=raw_section(Config))
def test_a_printed_configuration_given_back_changes_nothing(raw: dict[str, Any], tmp_path: Path) -> None:
    config = Config.model_validate(raw)
    file = tmp_path / "printed.json5"
    file.write_text(print_config(config), encoding="utf-8")
    again = Config.model_validate(read_config_file(file))
    # Relative paths count from the file, so they come back absolute.
    paths: dict[str, Any] = {section: set(options) for section, options in PATH_OPTIONS.items()}
    paths["models"] = {"__all__": {**paths, **dict.fromkeys(PATHS_OF_MODEL, True)}}
    assert again.model_dump(exclude=paths) == config.model_dump(exclude=paths)
    assert again.tokenizer.model_fields_set == config.tokenizer.model_fields_set


def test_defaults_are_comments() -> None:
    printed = print_config(Config())
    assert json5.loads(printed) == {
        "runtime": {},
        "tokenizer": {},
        "llguidance": {"limits": {}},
        "embedding": {},
        "llamacpp": {},
        "trtllm": {},
        "sim": {},
        "tools": {},
        "py": {},
        "metrics": {},
        "kv_events": {},
        "disaggregation": {},
        "server": {},
    }


def test_every_option_and_its_description_are_there() -> None:
    lines = print_config(Config()).splitlines()
    for path in option_paths(Config):
        assert any(line.strip().removeprefix("// ").startswith(f"{path[-1]}: ") for line in lines), path
    assert "    /// Use 32064 for phi-3." in lines
    assert "    // n_vocab_override: null," in lines


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ({"runtime": {"max_batch_size": 4}}, "    max_batch_size: 4,"),
        ({"tokenizer": {"bos_token": None}}, "    bos_token: null,"),
        ({"tokenizer": {"chat_template": "a\nб\u2028"}}, r'    chat_template: "a\nб\u2028",'),
    ],
)
def test_what_is_set_is_live(raw: dict[str, Any], line: str) -> None:
    assert line in print_config(Config.model_validate(raw)).splitlines()
