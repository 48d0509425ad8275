"""Answers as OpenAI's response objects and their events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from llgtrt.patient_json import Written, long_json
from llgtrt.serving.apis.responses.items import new_id
from llgtrt.serving.errors import Failure
from llgtrt.serving.output import AnswerHead, Encoder, Finished, Logprobs, OutputEvent, TokenUsage, sse
from llgtrt.serving.sampling import now
from llgtrt.tools import CallArguments, CallBegun, CallEnded, Reasoning, Text

Keep = Callable[[bytes, tuple[str, ...]], None]


class ResponsesEncoder(Encoder):
    """Writes the items of an output one after the other: thinking, text, calls.

    Args:
        head: what all objects of the answer have in common.
        echo: the members of the response that repeat the request, as JSON without the braces. They may be
            long, and a response is written several times.
        keep: takes the complete response and the ids of its output.
    """

    def __init__(self, head: AnswerHead, *, echo: bytes, keep: Keep) -> None:
        self._head = head
        self._echo = echo
        self._keep = keep
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._texts: list[str] = []
        """Pieces of the item that is open."""
        self._open = False
        self._chars = 0
        self._waiting: list[Logprobs] = []
        """Of tokens whose text did not come yet."""
        self._elements: list[str] = []
        """Log-probabilities of the item that is open, as the core wrote them."""
        self._event_elements: list[str] = []
        """The same as events hold them."""
        self._streams = True
        self._finished: Finished | None = None

    @property
    def size(self) -> int:
        """The response holds what was asked, and the last one the whole output."""
        return self._chars + len(self._echo)

    def begin(self) -> bytes:
        """The response before there is anything of it."""
        response = self.response("in_progress")
        return self._lifecycle("created", response) + self._lifecycle("in_progress", response)

    def event(self, index: int, event: OutputEvent) -> bytes:
        """The events of the items."""
        if isinstance(event, Text):
            begun = b"" if self._is_open("message") else self._begin_text("message", "msg", "output_text")
            logprobs = self._take_logprobs()
            return begun + self._piece(
                "response.output_text.delta", event.text, content_index=0, logprobs=logprobs
            )
        if isinstance(event, Reasoning):
            begun = (
                b"" if self._is_open("reasoning") else self._begin_text("reasoning", "rs", "reasoning_text")
            )
            return begun + self._piece("response.reasoning_text.delta", event.text, content_index=0)
        if isinstance(event, CallBegun):
            call_id = self._head.new_call_id(event.name, event.index)
            return self._begin("fc", type="function_call", call_id=call_id, name=event.name, arguments="")
        if isinstance(event, CallArguments):
            return self._piece("response.function_call_arguments.delta", event.text)
        if isinstance(event, CallEnded):
            return self._close("completed")
        if isinstance(event, Logprobs):
            self._waiting.append(event)
            return b""
        # Ids of tokens are refused where the request is started: they have no place here.
        return self._finish(event) if isinstance(event, Finished) else b""

    def end(self, usage: TokenUsage) -> bytes:
        """The complete response."""
        status, response = self._complete(usage)
        return self._lifecycle(status, response)

    def failed(self, failure: Failure) -> bytes:
        """The response with the error, and what there is of its output."""
        closed = self._close("incomplete")
        response = self.response("failed", error=error_member(failure))
        self._kept(response)
        return closed + self._lifecycle("failed", response)

    def whole(self, events: list[tuple[int, OutputEvent]], usage: TokenUsage) -> list[bytes]:
        """The response object."""
        self._streams = False
        for index, event in events:
            self.event(index, event)
        _status, response = self._complete(usage)
        return [response]

    def response(
        self, status: str, usage: TokenUsage | None = None, error: dict[str, Any] | None = None
    ) -> bytes:
        """The response object as far as it is known, as JSON."""
        done = status in ("completed", "incomplete")
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        response = {
            "id": self._head.response.response_id,
            "object": "response",
            "created_at": self._head.response.created,
            "completed_at": now() if done else None,
            "status": status,
            "error": error,
            "incomplete_details": cut,
            "model": self._head.response.model,
            "output": self._items,
        }
        if usage is not None:
            response["usage"] = _usage(usage)
        if self._finished is not None and self._finished.receipt is not None:
            response["constraint"] = self._finished.receipt
        if self._head.expanded_prompt is not None:
            response["expanded_prompt"] = self._head.expanded_prompt
        return long_json(response)[:-1] + b"," + self._echo + b"}"

    def _complete(self, usage: TokenUsage) -> tuple[str, bytes]:
        cut = self._finished is not None and self._finished.reason == "length"
        status = "incomplete" if cut else "completed"
        response = self.response(status, usage)
        self._kept(response)
        return status, response

    def _kept(self, response: bytes) -> None:
        self._keep(response, tuple(item["id"] for item in self._items))

    def _lifecycle(self, name: str, response: bytes) -> bytes:
        kind = f"response.{name}"
        event = to_json({"type": kind, "sequence_number": self._sequence})
        self._sequence += 1
        return sse(event[:-1] + b',"response":' + response + b"}", kind)

    def _finish(self, event: Finished) -> bytes:
        self._finished = event
        begun = b""
        if not self._items:
            # Clients look at the first item of an output.
            begun = self._begin_text("message", "msg", "output_text")
        return begun + self._close("incomplete" if event.reason == "length" else "completed")

    def _is_open(self, kind: str) -> bool:
        return self._open and bool(self._items[-1]["type"] == kind)

    def _begin(self, id_kind: str, **members: Any) -> bytes:
        closed = self._close("completed")
        self._items.append({"id": new_id(id_kind), **members, "status": "in_progress"})
        self._open = True
        return closed + self._at("response.output_item.added", item=self._items[-1])

    def _begin_text(self, kind: str, id_kind: str, part_kind: str) -> bytes:
        members: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        begun = self._begin(id_kind, type=kind, **members, content=[])
        part = _part(part_kind, "")
        self._items[-1]["content"] = [part]
        return begun + self._of_item("response.content_part.added", content_index=0, part=part)

    def _piece(self, kind: str, text: str, **members: Any) -> bytes:
        self._texts.append(text)
        self._chars += len(text)
        return self._of_item(kind, delta=text, **members)

    def _close(self, status: str) -> bytes:
        """Ends the item that is open, if there is one."""
        if not self._open:
            return b""
        self._open = False
        item = self._items[-1]
        item["status"] = status
        text = "".join(self._texts)
        self._texts = []
        if item["type"] == "function_call":
            item["arguments"] = text
            done = self._of_item("response.function_call_arguments.done", name=item["name"], arguments=text)
        else:
            done = self._close_text(item, text)
        return done + self._at("response.output_item.done", item=item)

    def _close_text(self, item: dict[str, Any], text: str) -> bytes:
        part = item["content"][0]
        part["text"] = text
        extra: dict[str, Any] = {}
        kind = "response.reasoning_text.done"
        if item["type"] == "message":
            kind = "response.output_text.done"
            # The marks around an answer are tokens as well.
            self._take_logprobs()
            part["logprobs"] = _listed(self._elements)
            extra = {"logprobs": _listed(self._event_elements)}
            self._elements, self._event_elements = [], []
        done = self._of_item(kind, content_index=0, text=text, **extra)
        return done + self._of_item("response.content_part.done", content_index=0, part=part)

    def _take_logprobs(self) -> list[Any] | Written:
        """Log-probabilities of tokens whose text comes now, as an event holds them."""
        waiting, self._waiting = self._waiting, []
        self._elements += [one.elements for one in waiting]
        if not self._streams:
            return []
        elements = [_event_elements(one) for one in waiting]
        self._event_elements += elements
        return _listed(elements)

    def _of_item(self, kind: str, **members: Any) -> bytes:
        return self._at(kind, item_id=self._items[-1]["id"], **members)

    def _at(self, kind: str, **members: Any) -> bytes:
        return self._event(kind, output_index=len(self._items) - 1, **members)

    def _event(self, kind: str, **members: Any) -> bytes:
        if not self._streams:
            return b""
        event = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        # The last ones hold the whole item, with all of its log-probabilities.
        is_long = kind.endswith(".done") or isinstance(members.get("logprobs"), Written)
        return sse(long_json(event) if is_long else to_json(event), kind)


def error_member(failure: Failure) -> dict[str, Any]:
    """``error`` of a response that failed. OpenAI's codes know little else than the server's errors."""
    code = "invalid_prompt" if failure.status < 500 else "server_error"
    return {"code": code, "message": failure.message}


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "output_text":
        return {"type": kind, "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, "text": text}


def _event_elements(logprobs: Logprobs) -> str:
    """Events hold less of each token than the response."""
    written = [
        {
            "token": token["token"],
            "logprob": token["logprob"],
            "top_logprobs": [
                {"token": one["token"], "logprob": one["logprob"]} for one in token["top_logprobs"]
            ],
        }
        for token in logprobs.tokens
    ]
    return b",".join(map(to_json, written)).decode()


def _listed(elements: list[str]) -> list[Any] | Written:
    """A list of what is written already."""
    return Written(f"[{','.join(filter(None, elements))}]") if elements else []


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.prompt + usage.completion,
    }
