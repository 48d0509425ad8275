"""Chat answers with calls or thinking as OpenAI's ``chat.completion`` objects and chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from llgtrt.patient_json import Written, long_json_parts
from llgtrt.serving.errors import Failure
from llgtrt.serving.output import (
    AnswerHead,
    Encoder,
    Finished,
    Logprobs,
    OutputEvent,
    Tokens,
    TokenUsage,
    sse,
)
from llgtrt.tools import CallArguments, CallBegun, Reasoning, Text

DONE = b"data: [DONE]\n\n"


@dataclass
class _Message:
    """One choice that is not streamed."""

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    token_ids: list[int] | None = None
    finished: Finished | None = None


@dataclass
class _Choice:
    """One choice of a stream. ``logprobs`` and ``token_ids`` are of tokens whose text did not come yet."""

    started: bool = False
    logprobs: list[Any] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


class ChatEncoder(Encoder):
    """OpenAI's chat.

    Args:
        head: what all objects of the answer have in common.
        legacy: calls go to ``function_call``.
        with_reasoning: the client gets the thinking.
    """

    def __init__(self, head: AnswerHead, *, legacy: bool, with_reasoning: bool = True) -> None:
        self._head = head
        self._legacy = legacy
        self._with_reasoning = with_reasoning
        self._choices: dict[int, _Choice] = {}
        self._first = True
        self._prompt: dict[str, Any] = {}
        """What is reported of the prompt, until it was sent."""
        self._counted: TokenUsage | None = None

    def counted(self, usage: TokenUsage) -> None:
        """Tells the token counts so far."""
        self._counted = usage

    def whole(self, events: list[tuple[int, OutputEvent]], usage: TokenUsage) -> list[bytes]:
        """The ``chat.completion`` object."""
        messages: dict[int, _Message] = {}
        for index, event in events:
            self._collect(messages.setdefault(index, _Message()), event)
        response: dict[str, Any] = {
            **self._head.response.members("chat.completion"),
            "choices": [self._whole_choice(index, one) for index, one in sorted(messages.items())],
            "usage": usage.openai(),
        }
        if self._head.expanded_prompt is not None:
            response["expanded_prompt"] = self._head.expanded_prompt
        return long_json_parts(response | self._prompt)

    def event(self, index: int, event: OutputEvent) -> bytes:
        """The chunk of an event, if it has one."""
        state = self._choices.setdefault(index, _Choice())
        if isinstance(event, Logprobs):
            state.logprobs += event.tokens
            return b""
        if isinstance(event, Tokens):
            state.token_ids += event.ids
            self._note_prompt(event)
            return b""
        if isinstance(event, Finished):
            return self._chunk(index, state, {}, event)
        member = self._member(event)
        return b"" if member is None else self._chunk(index, state, member)

    def end(self, usage: TokenUsage) -> bytes:
        """The chunk of the token counts, if it was asked for, and the mark of the end."""
        if not self._head.include_usage:
            return DONE
        return self._event({"choices": [], "usage": usage.openai()}) + DONE

    def failed(self, failure: Failure) -> bytes:
        """OpenAI's error object, and the mark that nothing follows."""
        return sse(to_json(failure.openai())) + DONE

    def _note_prompt(self, event: Tokens) -> None:
        if event.prompt_ids is not None:
            self._prompt["prompt_token_ids"] = event.prompt_ids
        if event.prompt_logprobs is not None:
            self._prompt["prompt_logprobs"] = event.prompt_logprobs

    def _finish_reason(self, event: Finished) -> str:
        """That of an answer that was cut, by its length or by a stop string, wins."""
        if not event.calls:
            return event.reason
        return "function_call" if self._legacy else "tool_calls"

    def _collect(self, message: _Message, event: OutputEvent) -> None:
        if isinstance(event, Text):
            message.text += event.text
        elif isinstance(event, Reasoning):
            message.reasoning += event.text
        elif isinstance(event, CallBegun):
            message.calls.append({"name": event.name, "arguments": ""})
        elif isinstance(event, CallArguments):
            message.calls[event.index]["arguments"] += event.text
        elif isinstance(event, Logprobs):
            message.logprobs.append(event)
        elif isinstance(event, Tokens):
            message.token_ids = [*(message.token_ids or ()), *event.ids]
            self._note_prompt(event)
        elif isinstance(event, Finished):
            message.finished = event

    def _whole_choice(self, index: int, one: _Message) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": one.text, "refusal": None}
        if one.calls:
            message["content"] = one.text or None
            if self._legacy:
                message["function_call"] = one.calls[0]
            else:
                message["tool_calls"] = [
                    {"id": self._head.new_call_id(call["name"], number), "type": "function", "function": call}
                    for number, call in enumerate(one.calls)
                ]
        if one.reasoning and self._with_reasoning:
            message["reasoning_content"] = message["reasoning"] = one.reasoning
        choice = {
            "index": index,
            "message": message,
            "logprobs": _whole_logprobs(one.logprobs),
            **self._end_of_choice(one.finished),
        }
        if one.token_ids is not None:
            choice["token_ids"] = one.token_ids
        return choice

    def _end_of_choice(self, finished: Finished | None) -> dict[str, Any]:
        """The members that say how a choice ended, if it did."""
        if finished is None:
            return {"finish_reason": None}
        members: dict[str, Any] = {"finish_reason": self._finish_reason(finished)}
        if finished.stop_reason is not None:
            members["stop_reason"] = finished.stop_reason
        if finished.receipt is not None:
            members["constraint"] = finished.receipt
        return members

    def _member(self, event: OutputEvent) -> dict[str, Any] | None:
        """The ``delta`` of an event's chunk."""
        if isinstance(event, Text):
            return {"content": event.text}
        if isinstance(event, Reasoning):
            if not self._with_reasoning:
                return None
            return {"reasoning_content": event.text, "reasoning": event.text}
        if isinstance(event, CallBegun):
            function = {"name": event.name, "arguments": ""}
            if self._legacy:
                return {"function_call": function}
            call_id = self._head.new_call_id(event.name, event.index)
            call = {"index": event.index, "id": call_id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        if isinstance(event, CallArguments):
            arguments = {"arguments": event.text}
            if self._legacy:
                return {"function_call": arguments}
            return {"tool_calls": [{"index": event.index, "function": arguments}]}
        return None

    def _chunk(
        self,
        index: int,
        state: _Choice,
        delta: dict[str, Any],
        finished: Finished | None = None,
    ) -> bytes:
        if not state.started:
            state.started = True
            delta = {"role": "assistant", "content": None if "tool_calls" in delta else "", **delta}
        logprobs = None
        if state.logprobs:
            logprobs = {"content": state.logprobs, "refusal": None}
            state.logprobs = []
        choice = {"index": index, "delta": delta, "logprobs": logprobs, **self._end_of_choice(finished)}
        if state.token_ids:
            choice["token_ids"] = state.token_ids
            state.token_ids = []
        return self._event({"choices": [choice]})

    def _event(self, members: dict[str, Any]) -> bytes:
        head = self._head
        event = head.response.members("chat.completion.chunk")
        if self._first:
            self._first = False
            if head.expanded_prompt is not None:
                event["expanded_prompt"] = head.expanded_prompt
            event |= self._prompt
        if head.continuous_usage and self._counted is not None:
            event["usage"] = self._counted.openai()
        event.update(members)
        if head.include_usage:
            event.setdefault("usage", None)
        return sse(to_json(event))


def _whole_logprobs(events: list[Logprobs]) -> Written | None:
    if not events:
        return None
    # Of an answer that is not streamed: as the core wrote them, for they may be long.
    elements = ",".join(event.elements for event in events if event.elements)
    return Written(f'{{"content":[{elements}],"refusal":null}}')
