"""Chat answers with calls or thinking: from the core's text to OpenAI's objects and events.

Plain answers do not come here: the core writes their events itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from llgtrt.engine import ChoiceDelta, Delta
from llgtrt.serving.generation import logprobs_object, response_object, usage_object
from llgtrt.tools import AnswerParser, AnswerPlan, CallArguments, CallBegun, Event, Reasoning, Text

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class ChatAnswer:
    """What the objects of one answer have in common.

    Attributes:
        plan: what the answer consists of.
        response_id, created, model: members of every object.
        expanded_prompt: the prompt, where the client asks for it.
        legacy: calls go to ``function_call``.
        count_tokens: the number of tokens of a text.
        include_usage: a stream ends with the token counts.
    """

    plan: AnswerPlan
    response_id: str
    created: int
    model: str
    expanded_prompt: str | None
    legacy: bool
    count_tokens: Callable[[str], int]
    include_usage: bool = False

    def finish_reason(self, reason: str | None, parser: AnswerParser) -> str | None:
        """OpenAI's reason: that of an answer that was cut, by its length or by a stop string, wins."""
        if reason != "stop" or not parser.complete:
            return reason
        return "function_call" if self.legacy else "tool_calls"

    def new_id(self, name: str, index: int) -> str:
        """The id of a call."""
        assert self.plan.format is not None
        return self.plan.format.new_id(name, index)

    def reasoning_tokens(self, reasoning: list[str]) -> int | None:
        """Tokens of the thinking of all choices; ``None`` where there cannot be any."""
        if self.plan.thinking is None:
            return None
        return sum(self.count_tokens(text) for text in reasoning if text)


class ChatResponse:
    """Builds the object of an answer that is not streamed."""

    def __init__(self, answer: ChatAnswer) -> None:
        self._answer = answer
        self._reasoning: list[str] = []

    def __call__(self, delta: Delta) -> dict[str, Any]:
        """The ``chat.completion`` object of the only delta."""
        one = self._answer
        response = response_object(
            "chat.completion",
            one.response_id,
            one.created,
            one.model,
            one.expanded_prompt,
            self._choice,
            delta,
        )
        response["usage"] = usage_object(delta.usage, one.reasoning_tokens(self._reasoning))
        return response

    def _choice(self, choice: ChoiceDelta) -> dict[str, Any]:
        parser = AnswerParser(self._answer.plan)
        events = parser.feed(choice.text) + parser.finish(cut=choice.finish_reason == "length")
        message, reasoning = self._message(events)
        self._reasoning.append(reasoning)
        result = {
            "index": choice.index,
            "message": message,
            "logprobs": logprobs_object(choice),
            "finish_reason": self._answer.finish_reason(choice.finish_reason, parser),
        }
        if choice.stop_reason is not None:
            result["stop_reason"] = choice.stop_reason
        return result

    def _message(self, events: list[Event]) -> tuple[dict[str, Any], str]:
        text = "".join(event.text for event in events if isinstance(event, Text))
        reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
        calls: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, CallBegun):
                calls.append({"name": event.name, "arguments": ""})
            elif isinstance(event, CallArguments):
                calls[event.index]["arguments"] += event.text
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text or None
            if self._answer.legacy:
                message["function_call"] = calls[0]
            else:
                message["tool_calls"] = [
                    {"id": self._answer.new_id(call["name"], index), "type": "function", "function": call}
                    for index, call in enumerate(calls)
                ]
        if reasoning:
            message["reasoning_content"] = message["reasoning"] = reasoning
        return message, reasoning


class _Choice:
    """One choice of a stream."""

    def __init__(self, plan: AnswerPlan) -> None:
        self.parser = AnswerParser(plan)
        self.started = False
        self.reasoning: list[str] = []
        self.logprobs: list[Any] = []
        """Of tokens whose text is held back."""


class ChatStream:
    """Encodes the deltas of a streamed answer as server-sent events."""

    def __init__(self, answer: ChatAnswer) -> None:
        self._answer = answer
        self._choices: dict[int, _Choice] = {}
        self._first = True

    def __call__(self, delta: Delta, last: bool) -> bytes:
        """The events of a delta; empty if all of it is held back."""
        out: list[bytes] = []
        for choice in sorted(delta.choices, key=lambda one: one.index):
            out += self._choice(choice)
        if last:
            if self._answer.include_usage:
                reasoning = ["".join(one.reasoning) for one in self._choices.values()]
                usage = usage_object(delta.usage, self._answer.reasoning_tokens(reasoning))
                out.append(self._event({"choices": [], "usage": usage}))
            out.append(DONE)
        return b"".join(out)

    def _choice(self, delta: ChoiceDelta) -> list[bytes]:
        state = self._choices.get(delta.index)
        if state is None:
            state = self._choices[delta.index] = _Choice(self._answer.plan)
        events = state.parser.feed(delta.text)
        reason = delta.finish_reason
        if reason is not None:
            events += state.parser.finish(cut=reason == "length")
        if delta.logprobs is not None:
            state.logprobs += from_json(delta.logprobs)["content"]
        state.reasoning += [event.text for event in events if isinstance(event, Reasoning)]
        members = [member for event in events for member in self._members(event)]
        out = [self._chunk(delta.index, state, member) for member in members]
        if reason is not None:
            finish = self._answer.finish_reason(reason, state.parser)
            out.append(self._chunk(delta.index, state, {}, finish, delta.stop_reason))
        return out

    def _members(self, event: Event) -> list[dict[str, Any]]:
        """The ``delta`` of an event's chunk, if it has one."""
        if isinstance(event, Text):
            return [{"content": event.text}]
        if isinstance(event, Reasoning):
            return [{"reasoning_content": event.text, "reasoning": event.text}]
        if isinstance(event, CallBegun):
            function = {"name": event.name, "arguments": ""}
            if self._answer.legacy:
                return [{"function_call": function}]
            call_id = self._answer.new_id(event.name, event.index)
            call = {"index": event.index, "id": call_id, "type": "function", "function": function}
            return [{"tool_calls": [call]}]
        if isinstance(event, CallArguments):
            arguments = {"arguments": event.text}
            if self._answer.legacy:
                return [{"function_call": arguments}]
            return [{"tool_calls": [{"index": event.index, "function": arguments}]}]
        return []

    def _chunk(
        self,
        index: int,
        state: _Choice,
        delta: dict[str, Any],
        finish_reason: str | None = None,
        stop_reason: str | int | None = None,
    ) -> bytes:
        if not state.started:
            state.started = True
            delta = {"role": "assistant", "content": None if "tool_calls" in delta else "", **delta}
        logprobs = None
        if state.logprobs:
            logprobs = {"content": state.logprobs, "refusal": None}
            state.logprobs = []
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        if stop_reason is not None:
            choice["stop_reason"] = stop_reason
        return self._event({"choices": [choice]})

    def _event(self, members: dict[str, Any]) -> bytes:
        one = self._answer
        event = {
            "id": one.response_id,
            "object": "chat.completion.chunk",
            "created": one.created,
            "model": one.model,
        }
        if self._first:
            self._first = False
            if one.expanded_prompt is not None:
                event["expanded_prompt"] = one.expanded_prompt
        event.update(members)
        if one.include_usage:
            event.setdefault("usage", None)
        return b"data: " + to_json(event) + b"\n\n"
