"""The one place where the core's output becomes typed events, and what an API makes of them.

:class:`AnswerReader` gives the events of every choice in order; an :class:`Encoder` per API writes them in
that API's form, streamed or whole. Plain chat and completion text does not come here: the core writes its
bytes itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import from_json

from llgtrt.engine import ChoiceDelta, Delta, ServerFields, Usage
from llgtrt.patient_json import read_own
from llgtrt.serving.errors import Failure
from llgtrt.tools import AnswerParser, AnswerPlan, CallArguments, CallBegun, CallEnded, Reasoning, Text


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of tokens in the form of OpenAI's chat: before the text that they belong to.

    Of tokens whose text is held back they come early.

    Attributes:
        written: an object whose member ``content`` has an element for each token, as the core's JSON.
    """

    written: str

    @property
    def tokens(self) -> list[dict[str, Any]]:
        """The elements; to read them may take long."""
        tokens: list[dict[str, Any]] = read_own(self.written)["content"]
        return tokens

    @property
    def elements(self) -> str:
        """The elements as they are written, with commas between them."""
        return self.written[self.written.index("[") + 1 : self.written.rindex("]")]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of tokens, and what is reported of the prompt, where the request asks for it.

    Attributes:
        ids: of the choice's new tokens.
        prompt_ids: of the prompt, once per choice.
        prompt_logprobs: of the prompt, once per choice, as vLLM has them.
    """

    ids: list[int]
    prompt_ids: list[int] | None = None
    prompt_logprobs: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a choice.

    Attributes:
        reason: the core's ``stop`` or ``length``.
        calls: it ended with its calls, all of them complete. An answer that was cut, by its length or by a
            stop string, may hold calls without this.
        stop_reason: the stop string or the id of the stop token that ended it.
        receipt: of a constrained choice, what is shown as ``constraint`` (docs/receipt.md).
    """

    reason: str
    calls: bool
    stop_reason: str | int | None
    receipt: dict[str, Any] | None = None


OutputEvent: TypeAlias = (
    "Text | Reasoning | CallBegun | CallArguments | CallEnded | Logprobs | Tokens | Finished"
)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of a request. ``reasoning`` is of the thinking; ``None`` where there cannot be any."""

    prompt: int
    completion: int
    cached: int
    reasoning: int | None = None

    @classmethod
    def of(cls, usage: Usage | None, reasoning: int | None = None) -> TokenUsage:
        """The core's counts; all are 0 where it gave none."""
        if usage is None:
            return cls(0, 0, 0, reasoning)
        if reasoning is not None:
            reasoning = min(reasoning, usage.completion_tokens)
        return cls(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, reasoning)

    def openai(self) -> dict[str, Any]:
        """``usage`` of chat and completions; with the thinking where the model may think."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        if self.reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.reasoning}
        return usage


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The members that all of OpenAI's objects of one answer begin with.

    Attributes:
        response_id: ``id``.
        created: seconds since the epoch.
        model: the name to answer with.
        system_fingerprint: what the answer depends on beside the request, as a short hash; None: left out.
    """

    response_id: str
    created: int
    model: str
    system_fingerprint: str | None

    def members(self, object_name: str) -> dict[str, Any]:
        """Them, in an object of that name."""
        members = {
            "id": self.response_id,
            "object": object_name,
            "created": self.created,
            "model": self.model,
        }
        if self.system_fingerprint is not None:
            members["system_fingerprint"] = self.system_fingerprint
        return members

    def core_fields(self) -> ServerFields:
        """Them, for the core, which writes plain answers itself."""
        return {
            "response_id": self.response_id,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What all objects of one answer have in common.

    Attributes:
        response: the members of OpenAI's objects.
        plan: what the answer may consist of.
        expanded_prompt: the prompt, where the client asks for it.
        include_usage: an OpenAI stream ends with the token counts.
        continuous_usage: and each chunk before has those so far.
    """

    response: ResponseHead
    plan: AnswerPlan
    expanded_prompt: str | None = None
    include_usage: bool = False
    continuous_usage: bool = False

    def new_call_id(self, name: str, index: int) -> str:
        """The id of a call, in the form that the model's template wants."""
        assert self.plan.format is not None
        return self.plan.format.new_id(name, index)


class Encoder(ABC):
    """Writes the events of one answer in the form of an API."""

    @property
    def size(self) -> int:
        """How much :meth:`begin` and :meth:`end` have to write of what is known, in bytes of text about."""
        return 0

    def begin(self) -> bytes:
        """What a stream begins with, before the first event."""
        return b""

    def counted(self, usage: TokenUsage) -> None:
        """Tells the token counts so far, before the beginning and before the events that they include."""
        del usage

    @abstractmethod
    def event(self, index: int, event: OutputEvent) -> bytes:
        """The next event of choice ``index``, for a stream; empty where nothing is to be sent for it."""

    @abstractmethod
    def end(self, usage: TokenUsage) -> bytes:
        """The end of a complete stream."""

    @abstractmethod
    def failed(self, failure: Failure) -> bytes:
        """The end of a stream that fails after its beginning."""

    @abstractmethod
    def whole(self, events: list[tuple[int, OutputEvent]], usage: TokenUsage) -> list[bytes]:
        """The object of an answer that is not streamed, as JSON, in parts where it is long."""


class AnswerReader:
    """Makes events of the core's deltas, each with the index of its choice."""

    def __init__(self, plan: AnswerPlan, count_tokens: Callable[[str], int]) -> None:
        self._plan = plan
        self._count_tokens = count_tokens
        self._parsers: dict[int, AnswerParser] = {}
        self._reasoning: dict[int, list[str]] = {}

    def read(self, delta: Delta) -> list[tuple[int, OutputEvent]]:
        """The events that are certain with a delta, ordered by choice."""
        events: list[tuple[int, OutputEvent]] = []
        for choice in sorted(delta.choices, key=lambda one: one.index):
            events += [(choice.index, event) for event in self._choice(choice)]
        return events

    def usage(self, usage: Usage | None) -> TokenUsage:
        """The counts at the end. May take long where the thinking is long."""
        reasoning = None
        if self._plan.thinking is not None:
            texts = ("".join(parts) for parts in self._reasoning.values())
            reasoning = sum(self._count_tokens(text) for text in texts if text)
        return TokenUsage.of(usage, reasoning)

    @property
    def reasoning_chars(self) -> int:
        """Length of the thinking so far: what :meth:`usage` looks at."""
        return sum(len(part) for parts in self._reasoning.values() for part in parts)

    def _choice(self, choice: ChoiceDelta) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        parser = self._parsers.get(choice.index)
        if parser is None:
            parser = self._parsers[choice.index] = AnswerParser(self._plan)
        if choice.token_ids or choice.prompt_token_ids is not None or choice.prompt_logprobs is not None:
            logprobs = None if choice.prompt_logprobs is None else read_own(choice.prompt_logprobs)
            events.append(Tokens(choice.token_ids, choice.prompt_token_ids, logprobs))
        if choice.logprobs is not None:
            events.append(Logprobs(choice.logprobs))
        texts = parser.feed(choice.text)
        reason = choice.finish_reason
        if reason is not None:
            texts += parser.finish(cut=reason == "length")
        for event in texts:
            if isinstance(event, Reasoning):
                self._reasoning.setdefault(choice.index, []).append(event.text)
        events += texts
        if reason is not None:
            calls = reason == "stop" and parser.complete
            receipt = None if choice.constraint is None else from_json(choice.constraint)
            events.append(Finished(reason, calls, choice.stop_reason, receipt))
        return events


class Output(ABC):
    """Makes what a client gets of the core's deltas, where the core does not write it itself."""

    def size(self, last: bool) -> int:
        """How much work a delta is beside its own text, in bytes of text about."""
        return 0

    def pieces(self, delta: Delta, last: bool) -> Iterator[bytes] | None:
        """What :meth:`encode` or :meth:`response` would give, where that is too much to be made at once.

        To make a piece takes some milliseconds, on any thread, most of them without the interpreter's lock.
        None: it is not too much.
        """
        del delta, last
        return None

    @abstractmethod
    def encode(self, delta: Delta, last: bool) -> bytes:
        """The part of a stream for a delta; empty if all of it is held back."""

    @abstractmethod
    def failed(self, failure: Failure) -> bytes:
        """The end of a stream that fails after its beginning."""

    @abstractmethod
    def response(self, delta: Delta) -> list[bytes]:
        """The object for the only delta of an answer that is not streamed, as JSON, a long one in parts."""


class EncodedAnswer(Output):
    """Typed events written by the encoder of an API."""

    def __init__(self, reader: AnswerReader, encoder: Encoder) -> None:
        self._reader = reader
        self._encoder = encoder
        self._began = False

    def encode(self, delta: Delta, last: bool) -> bytes:
        """The part of a stream for a delta; empty if all of it is held back."""
        parts: list[bytes] = []
        self._encoder.counted(TokenUsage.of(delta.so_far))
        if not self._began:
            self._began = True
            parts.append(self._encoder.begin())
        parts += [self._encoder.event(index, event) for index, event in self._reader.read(delta)]
        if last:
            parts.append(self._encoder.end(self._reader.usage(delta.usage)))
        return b"".join(parts)

    def response(self, delta: Delta) -> list[bytes]:
        """The object for the only delta."""
        events = self._reader.read(delta)
        return self._encoder.whole(events, self._reader.usage(delta.usage))

    def failed(self, failure: Failure) -> bytes:
        """The end of a stream that fails after its beginning."""
        return self._encoder.failed(failure)

    def size(self, last: bool) -> int:
        """The first delta and the last one come with what the API writes around them."""
        size = self._reader.reasoning_chars if last else 0
        return size if self._began and not last else size + self._encoder.size


def sse(data: bytes, event: str | None = None) -> bytes:
    """A server-sent event of JSON."""
    if event is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
