"""A rate limiter by API key, with tiers: `llgtrt ENGINE --hooks examples/hooks/rate_limiter.py:RateLimiter`.

py.hooks_arguments: {"default": 60, "tiers": {"gold": 600}}, requests per minute by the name of the key.
Without names (server.api_keys) every key counts for itself, and requests without a key together.
"""

import hashlib
import math
import threading
import time
from typing import Any

from llgtrt.hooks import HookRequest, Refusal

MINUTE_S = 60.0
MOST_CALLERS = 100_000


class RateLimiter:
    """As many requests at once as a minute may have; then places come back evenly."""

    def __init__(self, arguments: dict[str, Any] | None) -> None:
        given = arguments or {}
        self._default = float(given.get("default", 60))
        self._tiers = {str(name): float(rate) for name, rate in given.get("tiers", {}).items()}
        self._lock = threading.Lock()
        self._places: dict[str, tuple[float, float]] = {}

    def on_request(self, request: HookRequest) -> None:
        """Takes a place, or refuses with the time when there is one."""
        rate = self._tiers.get(request.key or "", self._default)
        wait_s = self._take(caller(request), rate, time.monotonic())
        if wait_s > 0:
            raise Refusal(
                f"Rate limit reached: {rate:g} requests per minute.",
                429,
                code="rate_limit_exceeded",
                headers={"retry-after": str(math.ceil(wait_s))},
            )

    def _take(self, who: str, rate: float, now: float) -> float:
        """0 if a place was taken, else the seconds until there is one."""
        with self._lock:
            places, since = self._places.pop(who, (rate, now))
            places = min(rate, places + (now - since) * rate / MINUTE_S)
            taken = places >= 1
            # The dictionary is in the order of last use: who was not here for longest is forgotten first.
            self._places[who] = (places - 1 if taken else places, now)
            if len(self._places) > MOST_CALLERS:
                del self._places[next(iter(self._places))]
        return 0.0 if taken else (1 - places) * MINUTE_S / rate


def caller(request: HookRequest) -> str:
    """Who asks: the name of the key, else a digest of it, so that no key stays in memory."""
    if request.key is not None:
        return f"name {request.key}"
    secret = request.headers.get("authorization") or request.headers.get("x-api-key")
    return "nobody" if secret is None else hashlib.sha256(secret.encode()).hexdigest()
