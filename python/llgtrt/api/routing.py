"""Routes whose endpoints take the request and give the response."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from llgtrt.api.responses import OF_EVERY_ROUTE


class PlainRoute(APIRoute):
    """Hands the request to its endpoint, an ``async def`` of the request alone, and gives back its response.

    FastAPI's own handler would look for parameters, dependencies and a model of the response first, of which
    there are none: a twentieth of what a short chat costs.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint itself."""
        return self.endpoint


def new_router(*tags: str) -> APIRouter:
    """A router of plain routes."""
    return APIRouter(route_class=PlainRoute, tags=list(tags), responses=OF_EVERY_ROUTE)
