"""A hook: prompts have at most so many characters, and each answer is counted by the name of its key."""

import collections
import json
import logging
from typing import Any

from llgtrt.hooks import HookEnd, HookRequest, Refusal

logger = logging.getLogger("llgtrt_example_plugin")


class PromptLimit:
    """``py.hooks_arguments``: ``{"characters": N}``, 4000 if nothing is said."""

    def __init__(self, arguments: dict[str, Any] | None) -> None:
        self._most = int((arguments or {}).get("characters", 4000))
        self._answers: collections.Counter[str] = collections.Counter()

    async def on_request(self, request: HookRequest) -> None:
        """Refuses what is too long, before any other work is done for it."""
        size = len(json.dumps(request.messages if request.messages is not None else request.prompt))
        if size > self._most:
            raise Refusal(
                f"A prompt may have {self._most} characters, not {size}.", 413, code="prompt_too_long"
            )

    async def on_end(self, request: HookRequest, end: HookEnd) -> None:
        """Counts."""
        self._answers[request.key or "nobody"] += 1
        logger.info("answers so far: %s", dict(self._answers))
