"""What a hook sees of a request, and what it may say.

A hook is a class with any of three methods, each synchronous or not::

    from llgtrt.hooks import HookEnd, HookOutput, HookRequest, Refusal


    class MyHook:
        def on_request(self, request: HookRequest) -> None: ...
        def on_output(self, request: HookRequest, output: HookOutput) -> str | None: ...
        def on_end(self, request: HookRequest, end: HookEnd) -> None: ...

docs/hooks.md explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

METHODS: dict[str, int] = {"on_request": 1, "on_output": 2, "on_end": 2}
"""The methods of a hook, with the number of their arguments."""


class Refusal(Exception):  # noqa: N818 (a decision of the hook, no fault)
    """Raised by a hook: the client gets this answer in place of a generation, or as the end of its stream.

    Attributes:
        message: one sentence for the client.
        status: HTTP status, 400 to 599.
        code: stable name for programs.
        headers: of the answer, such as ``retry-after``.
    """

    def __init__(
        self,
        message: str,
        status: int = 403,
        *,
        code: str = "refused",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not 400 <= status <= 599:
            raise ValueError(f"the status of a refusal is 400 to 599, not {status}")
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


@dataclass
class HookRequest:
    """A request for one generation. ``on_request`` may change what is marked.

    Attributes:
        id: the request's ``X-Request-Id``; all generations of one HTTP request share it.
        kind: ``chat`` or ``completion``, whichever the route becomes.
        path: the route's path, ``""`` outside of HTTP.
        client: address of the client.
        key: name of the API key, if keys have names here.
        headers: of the request, names in lower case.
        fields: what the request asks for, without messages and prompt, for reading.
        model: the model it asks for (changeable: another name that is served).
        messages: the conversation of a chat (changeable).
        prompt: the text, the token ids or the list of either of a completion (changeable).
        max_tokens: most tokens of an answer, -1 for no limit, ``None`` where it does not say (changeable).
        stream: whether the answer is streamed.
        constrained: whether a grammar holds the answer; known from ``on_output`` on.
        state: for the hook itself, from one method to the next.
    """

    id: str
    kind: Literal["chat", "completion"]
    path: str = ""
    client: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    messages: list[dict[str, Any]] | None = None
    prompt: Any = None
    max_tokens: int | None = None
    stream: bool = False
    constrained: bool = False
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HookOutput:
    """A piece of an answer as the model wrote it, before calls and thinking are told apart.

    Attributes:
        index: the choice.
        text: what is new of it: a delta of a stream, or all of an answer that is not streamed.
        final: nothing follows.
    """

    index: int
    text: str
    final: bool


@dataclass(frozen=True)
class HookEnd:
    """How a generation ended.

    Attributes:
        outcome: ``ok``; ``cancelled``: its client left or did not read; ``error``; ``refused``: by the hook's
            own ``on_output``.
        completion_tokens: tokens of all answers; where it did not end well, of what was read of them.
        prompt_tokens, cached_tokens: tokens of the prompt, and those found in the KV cache; ``None`` where it
            did not end well.
        finish_reasons: of each choice, in order; ``stop`` or ``length``.
        error: the kind of error, a name.
        duration_s: from ``on_request`` on.
    """

    outcome: Literal["ok", "cancelled", "error", "refused"]
    completion_tokens: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reasons: tuple[str, ...] = ()
    error: str | None = None
    duration_s: float = 0.0
