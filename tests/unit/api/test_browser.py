"""Pages of foreign sites cannot use a server without a key."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.fake_engine import AppFactory

PATH = "/v1/models"


async def status(app: Any, host: str, origin: str | None, path: str = PATH) -> int:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as http:
        return (await http.get(path, headers=headers)).status_code


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        # Programs.
        ("llgtrt.example:3000", None, 200),
        ("anything", None, 200),
        # Pages of this server, by an address or a name that nobody else can have given.
        ("127.0.0.1:3000", "http://127.0.0.1:3000", 200),
        ("localhost:3000", "http://localhost:3000", 200),
        ("[::1]:3000", "http://[::1]:3000", 200),
        # A foreign page, and one whose name points here.
        ("localhost:3000", "https://evil.example", 403),
        ("evil.example:3000", "http://evil.example:3000", 403),
        ("localhost:3000", "null", 403),
        # A page that was allowed.
        ("localhost:3000", "https://page.example", 200),
    ],
)
async def test_without_a_key(make_app: AppFactory, host: str, origin: str | None, expected: int) -> None:
    assert await status(make_app(cors_origins=["https://page.example"]), host, origin) == expected


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "expected"),
    [
        (["a.example"], "a.example:80", None, 200),
        (["a.example"], "A.EXAMPLE", "http://a.example", 200),
        (["a.example"], "b.example", None, 403),
        (["a.example"], "localhost", None, 403),
        (["*"], "b.example", "http://b.example", 200),
    ],
)
async def test_named_hosts(
    make_app: AppFactory, allowed: list[str], host: str, origin: str | None, expected: int
) -> None:
    assert await status(make_app(allowed_hosts=allowed), host, origin) == expected


async def test_a_key_is_enough(make_app: AppFactory) -> None:
    assert await status(make_app(api_key="k"), "llm.example", "https://llm.example", "/health") == 200


async def test_a_body_without_a_type_is_taken_from_programs_only(make_app: AppFactory) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(make_app()), base_url="http://localhost"
    ) as http:
        route = "/v1/chat/completions"
        assert (await http.post(route, content=b"{}")).status_code == 400
        headers = {"origin": "http://localhost"}
        assert (await http.post(route, content=b"{}", headers=headers)).status_code == 415
