"""``--set``, and the flags that stand for options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import FLAGS, Arguments, Config, ConfigError, load_settings
from llgtrt.config.assignments import assigned
from llgtrt.config.files import option_paths, path_text
from llgtrt.config.printing import json_text


def options(model: Any = Config) -> list[str]:
    """Every option, without the sections."""
    paths = [path_text(path) for path in option_paths(model)]
    return [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]


def default(option: str) -> Any:
    value: Any = Config().model_dump()
    for part in option.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("option", options())
def test_every_option_can_be_set(option: str) -> None:
    section = assigned([f"{option}={json_text(default(option))}"])
    for part in option.split("."):
        section = section[part]
    assert section == default(option)
    with pytest.raises(ConfigError, match=r"^--set [a-z0-9._]+: "):
        assigned([f"{option}=["])


def test_values_are_json5() -> None:
    assert assigned(["server.cors_origins=['https://a', 'https://b',]", "server.port=0x10"]) == {
        "server": {"cors_origins": ["https://a", "https://b"], "port": 16}
    }
    assert assigned(["tokenizer.bos_token=null"]) == {"tokenizer": {"bos_token": None}}
    assert assigned(['server.model_aliases={"a=b": "c"}']) == {"server": {"model_aliases": {"a=b": "c"}}}


def test_the_last_one_wins() -> None:
    assert assigned(["server.port=1", "server.host='h'", "server.port=2"]) == {
        "server": {"port": 2, "host": "h"}
    }


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("server.prot=1", "--set: server.prot: unknown option, did you mean 'server.port'?"),
        ("port=1", "--set: port: unknown option, did you mean 'server.port'?"),
        ("server.port='1'", "--set: server.port: should be a valid integer"),
        ("server.port=70000", "--set: server.port: should be less than or equal to 65535"),
        ("server.port", "--set server.port: expected section.key=value, with a value in JSON5"),
        ("=1", "--set =1: expected section.key=value, with a value in JSON5"),
        ("server=1", "--set: server: should be"),
        ("server.port.x=1", "--set: server.port: should be a valid integer"),
        (
            "server.host=localhost",
            "--set server.host: the value is not JSON5; a text has quotes around it: "
            "--set 'server.host=\"localhost\"'",
        ),
        ("server.api_key=7", "--set: server.api_key: should be a text or a list of texts"),
        ("server.api_key=['a', '']", "--set: server.api_key: should not be empty"),
        (
            "server.served_model_name=['*', 'a']",
            '--set: server.served_model_name: "*" should not be',
        ),
    ],
)
def test_what_is_wrong_is_named(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assigned([assignment])
    assert str(caught.value).startswith(message)


def test_it_wins_over_flags_and_flags_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.json5"
    file.write_text(json.dumps({"runtime": {"max_seq_len": 1, "max_batch_size": 1, "max_num_tokens": 1}}))
    arguments = Arguments(
        backend="sim",
        config=(file,),
        max_seq_len=2,
        max_batch_size=2,
        set=("runtime.max_seq_len=3", "server.uds='a.sock'"),
    )
    config = load_settings(arguments).config
    runtime = config.runtime
    assert (runtime.max_seq_len, runtime.max_batch_size, runtime.max_num_tokens) == (3, 2, 1)
    assert config.server.uds == str(tmp_path / "a.sock"), "a path counts from the current folder"


def test_flags_that_stand_for_options_set_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("k\n")
    values = {"text": "x", "number": 3, "port": 3, "path": Path("keys"), "texts": ("x", "y")}
    for name, flag in FLAGS.items():
        if flag.option is None:
            continue
        given: dict[str, Any] = {"backend": "sim", name: values[flag.kind]}
        config = load_settings(Arguments(**given)).config
        value: Any = config
        for part in flag.option.split("."):
            value = getattr(value, part)
        expected = {"path": str(tmp_path / "keys"), "texts": ["x", "y"]}.get(flag.kind, values[flag.kind])
        assert value == expected, name
        if flag.kind == "number":
            with pytest.raises(ConfigError, match=flag.option):
                load_settings(Arguments(**{**given, name: -1}))
