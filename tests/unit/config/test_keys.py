"""Where keys come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llgtrt.config import ApiKey, Arguments, ConfigError, load_settings
from llgtrt.config.key_file import read_key_file

FILE = """# whose keys these are
secret-1

alice secret-2
  bob\tsecret-3 requests_per_minute=60   max_concurrent=2
"""


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(FILE)
    assert read_key_file(file) == [
        ApiKey(key="secret-1"),
        ApiKey(name="alice", key="secret-2"),
        ApiKey(name="bob", key="secret-3", requests_per_minute=60, max_concurrent=2),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# none\n", "there is no key in it"),
        ("a secret b\n", ":1: after NAME and KEY come"),
        ("\na secret max_concurrent=x\n", ":2: after NAME and KEY come"),
        ("a secret max_concurrent=1 max_concurrent=2\n", ":1: after NAME and KEY come"),
        ("a secret max_concurrent=0\n", ":1: max_concurrent: should be greater than or equal to 1"),
        ("a" * 101 + " secret\n", ":1: name: "),
    ],
)
def test_a_wrong_line_is_named_without_its_key(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_key_file(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_all_sources_together(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("carol k4\n")
    server = {"api_key": "of the file", "api_keys": [{"key": "k1", "name": "a"}], "api_key_file": "keys"}
    config = tmp_path / "a.json5"
    config.write_text(json.dumps({"server": server}))
    settings = load_settings(Arguments(backend="sim", config=(config,), api_key=("k2", "k3")))
    assert [(key.name, key.key) for key in settings.config.server.keys] == [
        ("a", "k1"),
        ("carol", "k4"),
        (None, "k2"),
        (None, "k3"),
    ]
    assert "k1" not in repr(settings)
    assert "k2" not in repr(settings)


def test_one_key_has_one_entry(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a k\nb k\n")
    with pytest.raises(ConfigError, match="twice"):
        load_settings(Arguments(backend="sim", api_key_file=tmp_path / "keys"))
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(Arguments(backend="sim", api_key_file=tmp_path / "missing"))
