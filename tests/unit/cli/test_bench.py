"""The command line of ``llgtrt bench``, without a server."""

from __future__ import annotations

import socket

import pytest

from llgtrt.cli.command import run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--dataset or --token-norm-dist"),
        (["--token-norm-dist", "1,2"], "four numbers"),
        (["--dataset", "missing.jsonl"], "missing.jsonl"),
        (["--token-norm-dist", "5,1,5,1", "--slo", "speed:3"], "ttft:MS"),
        (["--token-norm-dist", "5,1,5,1", "--plot", "x.gif"], "x.gif"),
        (["--token-norm-dist", "5,1,5,1", "--extra-body", "[]"], "--extra-body"),
        (["--token-norm-dist", "5,1,5,1", "--api", "other"], "--api"),
    ],
)
def test_wrong_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["bench", "http://127.0.0.1:9", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("api", ["chat", "triton-generate"])
def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str], api: str) -> None:
    with socket.socket() as bound:
        # Bound and not listened on: nothing else can answer there.
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert run(["bench", url, "--api", api, "--token-norm-dist", "5,1,5,1"]) == 1
    error = capsys.readouterr().err
    assert url in error
    assert error.count("\n") == 1


def test_what_is_not_installed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llgtrt.cli.bench.NEEDED", ("json", "no_such_package"))
    assert run(["bench", "http://127.0.0.1:9"]) == 1
    error = capsys.readouterr().err
    assert "no_such_package not installed" in error
    assert "llgtrt[bench]" in error
