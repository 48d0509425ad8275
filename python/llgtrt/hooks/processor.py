"""The base class of input processors, and what it is given."""

from __future__ import annotations

import abc
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llgtrt.chat import ChatTemplate, Prompt

from .prepared import PreparedInput


@dataclass(frozen=True, kw_only=True)
class ProcessorContext:
    """What a processor may know of the server. Immutable.

    Attributes:
        engine_dir: the folder of the model, ``None`` where there is none.
        hf_model_dir: ``py.hf_model_dir``, else the folder of the model.
        visual_engine_dir: ``py.visual_engine_dir``, else ``visual_engine`` in the folder of the model.
        arguments: ``py.arguments``, any JSON value.
        tokenizer_path: the tokenizer.json in use; ``None`` where the tokenizer is in the model file.
        vocab_size: token ids of the model are below it; those of a prompt table begin with it.
        max_sequence_tokens: most tokens of prompt and answer together.
        bos_token, eos_token: texts of these tokens.
        template: the server's chat template.
        encode: token ids of a text; the flag: whether to add the tokenizer's own BOS.
        decode: the text of token ids.
    """

    engine_dir: Path | None = None
    hf_model_dir: Path | None = None
    visual_engine_dir: Path | None = None
    arguments: Any = None
    tokenizer_path: Path | None = None
    vocab_size: int
    max_sequence_tokens: int
    bos_token: str | None = None
    eos_token: str | None = None
    template: ChatTemplate
    encode: Callable[[str, bool], list[int]]
    decode: Callable[[list[int]], str]


@dataclass(frozen=True, kw_only=True)
class InputRequest:
    """A conversation to turn into a prompt. The values are the request's own copies and may be changed.

    Attributes:
        messages: as the client sent them, unchecked: content may be a text or a list of parts (``text``,
            ``image_url`` and others), and members may be missing or of any type.
        json_schema: the schema of the answer, where the client wants the model to see it.
        add_generation_prompt: the prompt ends with the header of an answer.
        continue_final_message: the final assistant message is left open.
        template_kwargs: ``chat_template_kwargs`` of the request.
        tools: definitions of the tools that the model may call, for the template.
        documents: what the model is to answer from, for the template.
        max_tokens: most tokens of an answer; ``None``: what is left of the context.
        n: answers to this prompt.
        stream: the answer is streamed.
        seed: seed of the first answer, ``None`` if the client gave none.
    """

    messages: list[dict[str, Any]]
    json_schema: Any = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int | None = None
    n: int = 1
    stream: bool = False
    seed: int | None = None
    _cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: long work may stop and raise anything."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Sets :attr:`cancelled`; for the server."""
        self._cancelled.set()

    def with_messages(self, messages: list[dict[str, Any]]) -> InputRequest:
        """The same request with other messages."""
        return dataclasses.replace(self, messages=messages)


class InputProcessor(abc.ABC):
    """Turns conversations into prompts. Derive one class from it, in a file of its own.

    One object serves all requests. ``process`` runs on threads of its own, off the event loop: one call at a
    time unless ``py.threads`` allows more, for which it has to be safe.
    """

    def __init__(self, context: ProcessorContext) -> None:
        """Loads what is needed, once. Whatever it raises ends the server's start."""
        self.context = context

    @abc.abstractmethod
    def process(self, request: InputRequest) -> PreparedInput:
        """The prompt of a conversation.

        Raises:
            InputError: the client has to change its request (status 400). Errors of :meth:`render` and
                :meth:`tokenize` about the messages count as such too. Everything else is status 500.
        """

    def render(self, request: InputRequest) -> Prompt:
        """The conversation in the server's chat template, which takes text only.

        Names of control tokens in the texts of users are marked, so that :meth:`tokenize` keeps them as text.
        """
        return self.context.template.render(
            request.messages,
            tools=request.tools,
            documents=request.documents,
            json_schema=request.json_schema,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            template_kwargs=request.template_kwargs,
        )

    def tokenize(self, text: str | Prompt, *, add_special: bool = False) -> list[int]:
        """Token ids. Names of control tokens are control tokens, so a text of a user goes through
        :meth:`guard` first.

        Args:
            text: the text, or what :meth:`render` made.
            add_special: put the tokenizer's own BOS in front; a rendered prompt knows this by itself.
        """
        if isinstance(text, Prompt):
            return self.context.encode(text.text, text.add_special)
        return self.context.encode(text, add_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids, without control tokens and those of a prompt table."""
        return self.context.decode([token for token in tokens if 0 <= token < self.context.vocab_size])

    def guard(self, text: str) -> str:
        """The text with the names of control tokens marked: a user cannot write them."""
        return self.context.template.guard(text)
