"""Where secrets come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from llgtrt.truss import SecretNotFound, Secrets


def test_the_later_source_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = Secrets({"token": "default"}, tmp_path)
    assert isinstance(secrets, Mapping)
    assert secrets["token"] == "default"
    monkeypatch.setenv("TRUSS_SECRET_token", "variable")
    assert secrets["token"] == "variable"
    (tmp_path / "token").write_text("file")
    assert secrets["token"] == "file"
    assert len(secrets) == 1
    assert "file" not in repr(secrets)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_missing_one_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SecretNotFound, match=name):
        Secrets({"empty": None}, tmp_path)[name]


def test_one_that_config_yaml_does_not_name_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUSS_SECRET_other", "x")
    with pytest.raises(SecretNotFound):
        Secrets({}, tmp_path)["other"]


def test_iterating_is_not_allowed(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="can't be iterated"):
        list(Secrets({"a": "b"}, tmp_path))
    with pytest.raises(NotImplementedError):
        dict(Secrets({"a": "b"}, tmp_path))
