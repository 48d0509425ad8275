"""Keeps web pages from using a server that only its own machine or network is meant to use.

A page of any site can send requests to ``http://localhost:3000``, and with a name that it points there it
looks like a page of this server (DNS rebinding). Browsers say where a page came from in ``Origin``, and
programs do not send it: so only requests with it are looked at, unless ``server.allowed_hosts`` names hosts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from llgtrt.api.errors import HttpError, error_response

ANY = "*"


class BrowserMiddleware:
    """Answers 403 to requests for other hosts, and to pages of sites that may not use this server."""

    def __init__(
        self, app: ASGIApp, allowed_hosts: Iterable[str], origins: Iterable[str], has_key: bool
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origins)
        self._has_key = has_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes an allowed request on."""
        error = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if error is None else error_response(error))(scope, receive, send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        headers = dict(scope["headers"])
        host = _name(headers.get(b"host", b"").decode("latin-1"))
        if self._hosts and ANY not in self._hosts and host not in self._hosts:
            return HttpError(403, "This server does not answer for that host.", code="host_not_allowed")
        origin = headers.get(b"origin")
        if origin is None or self._hosts or self._has_key or ANY in self._origins:
            # A page of a foreign site has no key.
            return None
        text = origin.decode("latin-1")
        if text in self._origins or (_is_local(host) and _name(urlsplit(text).netloc) == host):
            return None
        return HttpError(
            403,
            "Web pages of this origin may not use this server: add it to server.cors_origins, or the host to "
            "server.allowed_hosts.",
            code="origin_not_allowed",
        )


def _name(host: str) -> str:
    """A host without its port, in lower case; an IPv6 address without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_local(host: str) -> bool:
    """Whether nobody else can have given the name: an address is no name, and ``localhost`` is nobody's."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
