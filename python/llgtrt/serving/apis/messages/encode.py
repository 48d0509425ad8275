"""Answers as Anthropic's message objects and events, and its form of errors."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from llgtrt.serving.errors import Failure
from llgtrt.serving.output import AnswerHead, Encoder, Finished, OutputEvent, TokenUsage, sse
from llgtrt.tools import CallArguments, CallBegun, CallEnded, Reasoning, Text

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_object(failure: Failure) -> dict[str, Any]:
    """Anthropic's error object, with the field and the code that this server knows."""
    other = "invalid_request_error" if failure.status < 500 else "api_error"
    error = {"type": _ERROR_TYPES.get(failure.status, other), "message": failure.message}
    return {"type": "error", "error": {**error, "param": failure.param, "code": failure.code}}


class MessagesEncoder(Encoder):
    """Writes a message block by block: thinking, text, calls."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []
        self._open = False
        self._finished: Finished | None = None
        self._counted = TokenUsage(0, 0, 0)

    def counted(self, usage: TokenUsage) -> None:
        """Tells the token counts so far."""
        self._counted = usage

    def begin(self) -> bytes:
        """The beginning of the message, with the tokens of the prompt."""
        message = self._message([], None, self._counted)
        return _event("message_start", message=message)

    def event(self, index: int, event: OutputEvent) -> bytes:
        """The events of the blocks. This API has no log-probabilities."""
        if isinstance(event, Text):
            return self._more("text", {"text": ""}, "text_delta", "text", event.text)
        if isinstance(event, Reasoning):
            empty = {"thinking": "", "signature": ""}
            return self._more("thinking", empty, "thinking_delta", "thinking", event.text)
        if isinstance(event, CallBegun):
            call_id = self._head.new_call_id(event.name, event.index)
            return self._begin({"type": "tool_use", "id": call_id, "name": event.name, "input": {}})
        if isinstance(event, CallArguments):
            return self._delta("input_json_delta", "partial_json", event.text)
        if isinstance(event, CallEnded):
            return self._close()
        if isinstance(event, Finished):
            self._finished = event
            return self._close()
        return b""

    def end(self, usage: TokenUsage) -> bytes:
        """Why the message ended, its tokens, and its end."""
        reason, sequence = self._stop_reason()
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        ended = _event("message_delta", delta=delta, usage=_usage(usage), **self._receipt())
        return ended + _event("message_stop")

    def failed(self, failure: Failure) -> bytes:
        """The event of an error: nothing follows."""
        return sse(to_json(error_object(failure)), "error")

    def whole(self, events: list[tuple[int, OutputEvent]], usage: TokenUsage) -> list[bytes]:
        """The message object."""
        for index, event in events:
            self.event(index, event)
        blocks = []
        for block, parts in zip(self._blocks, self._texts, strict=True):
            text = "".join(parts)
            if block["type"] == "tool_use":
                # An answer that was cut ends within its arguments: what is whole of them.
                value = from_json(text, allow_partial="trailing-strings") if text else {}
                blocks.append({**block, "input": value})
            else:
                blocks.append({**block, block["type"]: text})
        return [to_json(self._message(blocks, self._finished, usage))]

    def _message(
        self, content: list[dict[str, Any]], finished: Finished | None, usage: TokenUsage
    ) -> dict[str, Any]:
        reason, sequence = self._stop_reason() if finished is not None else (None, None)
        message = {
            "id": self._head.response.response_id,
            "type": "message",
            "role": "assistant",
            "model": self._head.response.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": _usage(usage),
            **self._receipt(),
        }
        if self._head.expanded_prompt is not None:
            message["expanded_prompt"] = self._head.expanded_prompt
        return message

    def _receipt(self) -> dict[str, Any]:
        """What held a constrained answer, beside what the API's own clients read."""
        receipt = None if self._finished is None else self._finished.receipt
        return {} if receipt is None else {"constraint": receipt}

    def _stop_reason(self) -> tuple[str, str | None]:
        finished = self._finished
        if finished is None or finished.calls:
            return "end_turn" if finished is None else "tool_use", None
        if finished.reason == "length":
            return "max_tokens", None
        if isinstance(finished.stop_reason, str):
            return "stop_sequence", finished.stop_reason
        return "end_turn", None

    def _more(self, kind: str, empty: dict[str, Any], delta: str, member: str, text: str) -> bytes:
        begun = b""
        if not self._open or self._blocks[-1]["type"] != kind:
            begun = self._begin({"type": kind, **empty})
        return begun + self._delta(delta, member, text)

    def _begin(self, block: dict[str, Any]) -> bytes:
        closed = self._close()
        self._blocks.append(block)
        self._texts.append([])
        self._open = True
        return closed + _event("content_block_start", index=len(self._blocks) - 1, content_block=block)

    def _delta(self, kind: str, member: str, text: str) -> bytes:
        self._texts[-1].append(text)
        delta = {"type": kind, member: text}
        return _event("content_block_delta", index=len(self._blocks) - 1, delta=delta)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open = False
        return _event("content_block_stop", index=len(self._blocks) - 1)


def _usage(usage: TokenUsage) -> dict[str, Any]:
    """Here the tokens of the prompt are those that were not in the cache."""
    counts: dict[str, Any] = {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }
    if usage.reasoning is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return counts


def _event(kind: str, **members: Any) -> bytes:
    return sse(to_json({"type": kind, **members}), kind)
