"""Sockets to listen on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llgtrt.api.listen import address, bind, is_open_to_all
from llgtrt.config import Config, ConfigError, ServerConfig


def server(**options: object) -> ServerConfig:
    return Config.model_validate({"server": options}).server


def close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def test_a_name_is_listened_on_at_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        # Of the block for documentation: no machine has it.
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)
    listeners = bind(server(host="localhost", port=0))
    names = [listener.getsockname() for listener in listeners]
    assert [host for host, _ in names] == ["127.0.0.1", "127.0.0.2"]
    assert names[0][1] == names[1][1] != 0
    close(listeners)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries[3:])
    with pytest.raises(ConfigError, match="cannot listen"):
        bind(server(host="nowhere"))


def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="Address already in use"):
            bind(server(host="127.0.0.1", port=other.getsockname()[1]))


def test_the_socket_of_a_live_server_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = bind(server(uds=str(path)))
    first[0].listen()
    with pytest.raises(ConfigError, match="another server listens"):
        bind(server(uds=str(path)))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    close(first)
    # What a dead process left behind is taken.
    second = bind(server(uds=str(path)))
    assert address(second[0]) == f"unix:{path}"
    close(second)


@pytest.mark.parametrize(("host", "open_to_all"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_who_can_reach_it(host: str, open_to_all: bool) -> None:
    listeners = bind(server(host=host, port=0))
    assert [is_open_to_all(listener) for listener in listeners] == [open_to_all]
    close(listeners)
