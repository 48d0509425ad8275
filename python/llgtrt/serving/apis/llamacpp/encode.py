"""Answers in the form of llama.cpp's ``/completion``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import ChoiceDelta, Delta, Stream, Usage
from llgtrt.serving.errors import Failure
from llgtrt.serving.generation import receipt_member
from llgtrt.serving.output import Output, sse

STOP_TYPES = {"length": "limit", "stop": "eos"}


@dataclass
class LlamaOutput(Output):
    """Writes the answer to one request.

    Attributes:
        model: the model's name.
        prompt: the prompt, or several: texts or tokens.
        settings: what the request says of how to generate.
        with_tokens: the ids of tokens are in the answer.
        with_text: the answer's text is in it; not where nothing was to be generated.
        fields: the members to return, where not all are.
        stream: the request in the core, once it is there.
    """

    model: str
    prompt: Any
    settings: dict[str, Any]
    with_tokens: bool = False
    with_text: bool = True
    fields: list[str] | None = None
    stream: Stream | None = None
    _lines: set[int] = field(default_factory=set, init=False)
    """The choices with more than one line."""

    def encode(self, delta: Delta, last: bool) -> bytes:
        """An event for what is new of each answer, and one at its end with all of it but its text."""
        parts = b""
        for choice in delta.choices:
            if "\n" in choice.text:
                self._lines.add(choice.index)
            if choice.text or choice.token_ids:
                parts += sse(to_json(self._piece(choice, delta.so_far)))
            if choice.finish_reason is not None:
                usage = delta.usage if last else delta.so_far
                parts += sse(to_json(self._selected(self._end(choice, usage, ""))))
        return parts

    def failed(self, failure: Failure) -> bytes:
        """OpenAI's error object; the stream just ends."""
        return sse(to_json(failure.openai()))

    def response(self, delta: Delta) -> list[bytes]:
        """The object of a complete answer, or a list of them where there are several prompts."""
        answers = []
        for choice in sorted(delta.choices, key=lambda one: one.index):
            if "\n" in choice.text:
                self._lines.add(choice.index)
            text = choice.text if self.with_text else ""
            answers.append(self._selected(self._end(choice, delta.usage, text)))
        return [to_json(answers if len(answers) > 1 else answers[0])]

    @property
    def _several(self) -> bool:
        """Whether there are several prompts."""
        return isinstance(self.prompt, list) and not (self.prompt and isinstance(self.prompt[0], int))

    def _piece(self, choice: ChoiceDelta, so_far: Usage) -> dict[str, Any]:
        return {
            "index": choice.index,
            "content": choice.text if self.with_text else "",
            "tokens": choice.token_ids if self.with_tokens else [],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": so_far.completion_tokens,
            "tokens_evaluated": so_far.prompt_tokens,
        }

    def _end(self, choice: ChoiceDelta, usage: Usage | None, text: str) -> dict[str, Any]:
        reason = choice.finish_reason or "stop"
        word = choice.stop_reason if isinstance(choice.stop_reason, str) else ""
        predicted = 0 if usage is None else usage.completion_tokens
        evaluated = 0 if usage is None else usage.prompt_tokens
        cached = 0 if usage is None else usage.cached_tokens
        return {
            "index": choice.index,
            "content": text,
            "tokens": choice.token_ids if self.with_tokens and text else [],
            "id_slot": -1,
            "stop": True,
            "model": self.model,
            "tokens_predicted": predicted,
            "tokens_evaluated": evaluated,
            "generation_settings": self.settings,
            "prompt": self.prompt[choice.index] if self._several else self.prompt,
            "has_new_line": choice.index in self._lines and self.with_text,
            "truncated": False,
            "stop_type": "word" if word else STOP_TYPES[reason],
            "stopping_word": word,
            "tokens_cached": cached,
            "timings": self._timings(evaluated, cached, predicted),
            **receipt_member(choice),
        }

    def _timings(self, evaluated: int, cached: int, predicted: int) -> dict[str, Any]:
        """Counts, and how long they took in milliseconds."""
        summary = None if self.stream is None else self.stream.summary
        prompt_ms = predicted_ms = 0.0
        if summary is not None and summary.started_s is not None and summary.first_token_s is not None:
            prompt_ms = (summary.first_token_s - summary.started_s) * 1e3
            if summary.ended_s is not None:
                predicted_ms = (summary.ended_s - summary.first_token_s) * 1e3
        computed = evaluated - cached
        return {
            "cache_n": cached,
            "prompt_n": computed,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": _ratio(prompt_ms, computed),
            "prompt_per_second": _ratio(1e3 * computed, prompt_ms),
            "predicted_n": predicted,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": _ratio(predicted_ms, predicted),
            "predicted_per_second": _ratio(1e3 * predicted, predicted_ms),
        }

    def _selected(self, whole: dict[str, Any]) -> dict[str, Any]:
        """The members that the client wants, under the names that it gives them."""
        if not self.fields:
            return whole
        selected: dict[str, Any] = {}
        for path in self.fields:
            value: Any = whole
            for name in path.split("/"):
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                selected[path] = value
        return selected


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0
