"""Generations with the operator's hook around them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar, cast

from pydantic_core import to_json

from llgtrt.engine import ChoiceDelta, Delta, Payload, Usage
from llgtrt.hooks import (
    HookEnd,
    HookFailedError,
    HookOutput,
    HookRequest,
    HookRunner,
    HookTimeoutError,
    Refusal,
)
from llgtrt.serving.caller import CALLER
from llgtrt.serving.errors import HookError
from llgtrt.serving.generation import Generation
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.protocol import ChatRequest, CompletionRequest
from llgtrt.serving.sampling import asked_tokens

Asked = TypeVar("Asked", ChatRequest, CompletionRequest)

TOKEN_NAMES = ("max_completion_tokens", "max_tokens", "n_predict")
UNREADABLE_TEXT = "on_output must return a text or None"


class HookedGeneration:
    """One generation, as its hook sees it. A tap of its stream."""

    def __init__(self, runner: HookRunner, request: HookRequest) -> None:
        self.request = request
        self._runner = runner
        self._began = time.monotonic()
        self._tokens = 0
        self._reasons: dict[int, str] = {}
        self._over = False

    @property
    def watches_output(self) -> bool:
        """Whether the hook has ``on_output``."""
        return self._runner.has("on_output")

    async def passes(self, payload: Payload, last: bool) -> Payload:
        """A payload, with the texts that the hook wants instead."""
        if isinstance(payload, bytes):
            raise TypeError("a hook needs structured output")
        try:
            choices = [await self._choice(choice) for choice in payload.choices]
        except BaseException as error:
            if isinstance(error.__cause__, Refusal):
                self._end("refused", error)
            else:
                self.failed(error)
            raise
        if payload.error is not None:
            self._end("error", payload.error)
        elif last:
            self._end("ok", usage=payload.usage)
        if all(one is other for one, other in zip(choices, payload.choices, strict=True)):
            return payload
        return cast(Delta, _Edited(payload, choices=choices))

    def ended(self, error: Exception | None) -> None:
        """The stream was cancelled, or failed by the server."""
        self._end("cancelled" if error is None else "error", error)

    def failed(self, error: BaseException) -> None:
        """Something went wrong before the end of the stream, or before there was one."""
        if isinstance(error, asyncio.CancelledError):
            self._end("cancelled")
        else:
            self._end("error", error)

    async def _choice(self, choice: ChoiceDelta) -> ChoiceDelta:
        self._tokens += choice.token_count
        if choice.finish_reason is not None:
            self._reasons[choice.index] = choice.finish_reason
        final = choice.finish_reason is not None
        if not self.watches_output or not (choice.text or final):
            return choice
        output = HookOutput(choice.index, choice.text, final)
        text = await call_hook(self._runner, "on_output", self.request, output)
        if text is None or text == choice.text:
            return choice
        wrong = None
        if not isinstance(text, str):
            wrong = UNREADABLE_TEXT
        elif self.request.constrained and not self._runner.rewrites_constrained:
            wrong = "on_output rewrote a constrained answer, which would no longer be valid for certain"
        if wrong is not None:
            raise _failure(self._runner, "on_output", wrong)
        return cast(ChoiceDelta, _Edited(choice, text=text))

    def _end(
        self,
        outcome: Literal["ok", "cancelled", "error", "refused"],
        error: BaseException | None = None,
        usage: Usage | None = None,
    ) -> None:
        if self._over:
            return
        self._over = True
        end = HookEnd(
            outcome=outcome,
            completion_tokens=self._tokens if usage is None else usage.completion_tokens,
            prompt_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            finish_reasons=tuple(reason for _, reason in sorted(self._reasons.items())),
            error=None if error is None else type(error).__name__,
            duration_s=time.monotonic() - self._began,
        )
        self._runner.end(self.request, end)


async def start_hooked(
    runner: HookRunner,
    asked: Asked,
    start: Callable[[Asked, HookedGeneration], Awaitable[Generation]],
) -> Generation:
    """Asks the hook, then starts the request as it left it.

    ``on_end`` follows on every request that the hook lets pass, once.

    Raises:
        HookError: the hook refuses it, fails or takes too long.
        Exception: what ``start`` raises.
    """
    request = await in_proportion(asked.body_bytes, _shown, asked)
    before = (request.model, request.max_tokens)
    await call_hook(runner, "on_request", request)
    hooked = HookedGeneration(runner, request)
    try:
        changed = await in_proportion(asked.body_bytes, _changed, runner, asked, request, before)
        generation = await start(changed, hooked)
    except BaseException as error:
        hooked.failed(error)
        raise
    generation.stream.watch(hooked)
    return generation


async def call_hook(runner: HookRunner, method: str, *arguments: Any) -> Any:
    """What a method of the hook returns.

    Raises:
        HookError: it refuses, fails or takes too long.
    """
    try:
        return await runner.call(method, *arguments)
    except Refusal as refusal:
        raise HookError(refusal.status, refusal.message, refusal.code, refusal.headers) from refusal
    except HookTimeoutError as error:
        raise HookError(
            503, "The server's hook did not answer in time.", "hook_timeout", {"retry-after": "1"}
        ) from error
    except HookFailedError as error:
        raise _hook_failed() from error


def _failure(runner: HookRunner, method: str, message: str) -> HookError:
    error = HookFailedError(message)
    runner.fail(method, error)
    return _hook_failed()


def _hook_failed() -> HookError:
    return HookError(500, "The server's hook failed.", "hook_failed", {"x-should-retry": "false"})


def _shown(asked: ChatRequest | CompletionRequest) -> HookRequest:
    caller = CALLER.get()
    chat = isinstance(asked, ChatRequest)
    return HookRequest(
        id=caller.request_id,
        kind="chat" if chat else "completion",
        path=caller.path,
        client=caller.address,
        key=caller.key,
        headers=caller.headers(),
        fields=asked.model_dump(exclude_unset=True, exclude={"messages", "prompt"}, warnings=False),
        model=asked.model,
        messages=list(asked.messages) if isinstance(asked, ChatRequest) else None,
        prompt=asked.prompt if isinstance(asked, CompletionRequest) else None,
        max_tokens=asked_tokens(asked),
        stream=bool(asked.stream),
    )


def _changed(
    runner: HookRunner, asked: Asked, request: HookRequest, before: tuple[str | None, int | None]
) -> Asked:
    """The request with what the hook changed.

    Raises:
        HookError: it cannot be used.
    """
    update: dict[str, Any] = {}
    if request.model != before[0]:
        update["model"] = request.model
    if request.max_tokens != before[1]:
        update = {**update, **dict.fromkeys(TOKEN_NAMES), "max_tokens": request.max_tokens}
    name = "messages" if isinstance(asked, ChatRequest) else "prompt"
    text = getattr(request, name)
    if text != getattr(asked, name):
        update[name] = text
    if not update:
        return asked
    _check(runner, update)
    changed = asked.model_copy(update=update)
    if name in update:
        changed._body_bytes = max(asked.body_bytes, len(to_json(text)))
    return changed


def _check(runner: HookRunner, update: dict[str, Any]) -> None:
    tokens, messages = update.get("max_tokens"), update.get("messages", [{}])
    prompt = update.get("prompt", "")
    wrong = None
    if not isinstance(update.get("model"), str | None):
        wrong = "model must be a text"
    elif tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < -1):
        wrong = "max_tokens must be an integer from -1 up"
    elif not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages) or not messages:
        wrong = "messages must be a list of objects"
    elif not isinstance(prompt, str | list):
        wrong = "prompt must be a text or a list"
    if wrong is not None:
        raise _failure(runner, "on_request", f"on_request: {wrong}")


class _Edited:
    """A delta or a choice of one with some attributes replaced: those of the core cannot be changed."""

    __slots__ = ("_original", "_replaced")

    def __init__(self, original: Delta | ChoiceDelta, **replaced: Any) -> None:
        self._original = original
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._original, name)
