"""The sockets that the server listens on."""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path

from llgtrt.config import ConfigError, ServerConfig

_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
_ABSENT = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""A family of addresses that this machine does not have, such as IPv6 in many containers."""


def bind(server: ServerConfig) -> list[socket.socket]:
    """Bound sockets, not yet listening: one, or one for each address of a host name.

    Raises:
        ConfigError: an address is in use, or there is none.
    """
    try:
        return [_bind_unix(server.uds)] if server.uds is not None else _bind_tcp(server.host, server.port)
    except OSError as error:
        where = server.uds or f"{server.host}:{server.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from error


def address(listener: socket.socket, scheme: str = "http") -> str:
    """Where a socket listens, for people to read."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_open_to_all(listener: socket.socket) -> bool:
    """Whether other machines can reach it on every interface."""
    return listener.family != socket.AF_UNIX and listener.getsockname()[0] in _ANY_ADDRESS


def _bind_tcp(host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    absent: OSError | None = None
    with contextlib.ExitStack() as bound:
        for family, kind, protocol, _, sockaddr in dict.fromkeys(found):
            listener = bound.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # The addresses of IPv4 have a socket of their own.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if port == 0 and listeners:
                # A free port was picked for the first address; the others get the same.
                sockaddr = (sockaddr[0], listeners[0].getsockname()[1], *sockaddr[2:])
            try:
                listener.bind(sockaddr)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
                listener.close()
                continue
            listeners.append(listener)
        if absent is not None and not listeners:
            raise absent
        bound.pop_all()
    return listeners


def _bind_unix(path: str) -> socket.socket:
    if Path(path).is_socket():
        if _is_served(path):
            raise OSError(errno.EADDRINUSE, "another server listens on it")
        Path(path).unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    return listener


def _is_served(path: str) -> bool:
    """Whether somebody answers on a socket: one that a dead process left behind refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            # A full queue, or no permission: somebody is there.
            return True
    return True
