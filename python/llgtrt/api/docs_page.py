"""``/openapi.json``, and ``/docs``: the API as one page that needs neither a script nor another server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from html import escape
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
code { background: #8882; padding: 0 .2rem } h2 { margin-top: 2.5rem } :root { color-scheme: light dark }
"""


class Documentation:
    """The document and the page, made for the first who asks: that takes a fifth of a second, on a thread."""

    def __init__(self, openapi: Callable[[], dict[str, Any]]) -> None:
        """``openapi`` makes the application's OpenAPI document."""
        self._openapi = openapi
        self._made: asyncio.Future[tuple[bytes, bytes]] | None = None

    async def document(self, request: Request) -> Response:
        """The document."""
        return Response((await self._texts())[0], media_type="application/json")

    async def page(self, request: Request) -> Response:
        """The page."""
        return HTMLResponse((await self._texts())[1])

    async def _texts(self) -> tuple[bytes, bytes]:
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(self._make))
        # Others may wait for it as well when a client leaves.
        return await asyncio.shield(self._made)

    def _make(self) -> tuple[bytes, bytes]:
        document = self._openapi()
        return to_json(document), _page(document).encode()


def _page(document: dict[str, Any]) -> str:
    info = document["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('summary', ''))}. For programs: <a href=openapi.json>openapi.json</a>.</p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(
                f"<p>{escape(operation.get('summary', ''))}. {escape(operation.get('description', ''))}"
            )
            parts.append(_body(operation, document))
            parts.append(_responses(operation))
    return "\n".join(parts)


def _body(operation: dict[str, Any], document: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return ""
    name = content["schema"]["$ref"].rpartition("/")[2]
    schema = document["components"]["schemas"][name]
    required = schema.get("required", ())
    rows = [
        f"<tr><td><code>{escape(field)}</code><td>{escape(_type(value))}"
        f"<td>{'required. ' if field in required else ''}{escape(value.get('description', ''))}"
        for field, value in schema["properties"].items()
    ]
    return f"<table><tr><th>field<th>type<th>meaning{''.join(rows)}</table>"


def _responses(operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{status}</code><td>{escape(', '.join(response.get('content', ())))}"
        f"<td>{escape(response['description'])}"
        for status, response in operation["responses"].items()
    ]
    return f"<table><tr><th>status<th>content<th>meaning{''.join(rows)}</table>"


def _type(schema: dict[str, Any]) -> str:
    """A schema's type in a word or two; ``null`` means "not given" everywhere, so it is not said."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            types = [_type(one) for one in schema[keyword] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(types))
    if "enum" in schema or "const" in schema:
        return " or ".join(repr(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
