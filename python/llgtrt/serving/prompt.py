"""From the messages of a request to the prompt: the chat template, or the operator's input processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from llgtrt.chat import ChatError, ChatTemplate
from llgtrt.engine import AsyncEngine
from llgtrt.hooks import InputError, InputRequest, PreparedInput, ProcessorPool, Tensor
from llgtrt.serving.errors import RequestError
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.protocol import ChatRequest


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt for the core.

    Attributes:
        prompt: text, or token ids.
        expanded: the text for people.
        add_special: whether the tokenizer may put its BOS token in front of a text.
        extras: what an input processor made beside the tokens: a prompt table and the like.
    """

    prompt: str | list[int]
    expanded: str
    add_special: bool = True
    extras: dict[str, Any] = field(default_factory=dict)

    def followed_by(self, text: str) -> ChatPrompt:
        """The prompt with a text behind it.

        Raises:
            RequestError: the prompt is tokens.
        """
        if not isinstance(self.prompt, str):
            raise RequestError(
                "thinking: this server's input processor makes the prompt, which takes no scratch part.",
                "thinking",
            )
        return replace(self, prompt=self.prompt + text, expanded=self.expanded + text)


class ChatPrompts:
    """Makes the prompts of one model."""

    def __init__(
        self, engine: AsyncEngine, template: ChatTemplate, processor: ProcessorPool | None = None
    ) -> None:
        self._engine = engine
        self._template = template
        self._processor = processor

    @property
    def has_processor(self) -> bool:
        """Whether a prompt may take long: an input processor makes it."""
        return self._processor is not None

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template."""
        return self._template

    async def make(
        self,
        request: ChatRequest,
        json_schema: Any,
        n: int,
        max_tokens: int | None,
        tools: Sequence[dict[str, Any]] = (),
    ) -> ChatPrompt:
        """The prompt of a conversation.

        Raises:
            RequestError: the messages cannot be made into one.
            ProcessorFailedError: the input processor failed.
        """
        goes_on = bool(request.continue_final_message)
        add_generation_prompt = request.add_generation_prompt
        options: dict[str, Any] = {
            "json_schema": json_schema if request.include_json_schema_in_prompt else None,
            "add_generation_prompt": not goes_on if add_generation_prompt is None else add_generation_prompt,
            "continue_final_message": goes_on,
            "template_kwargs": self._template_kwargs(request),
            "tools": list(tools) or None,
            "documents": request.documents,
        }
        if self._processor is None:
            return await self._render(request, options)
        question = InputRequest(
            messages=request.messages,
            n=n,
            max_tokens=max_tokens,
            stream=bool(request.stream),
            seed=request.seed,
            **options,
        )
        try:
            prepared = await self._processor.process(question)
        except InputError as error:
            raise RequestError(error.message, error.param) from error
        return self._from(prepared, bool(request.return_expanded_prompt))

    def _template_kwargs(self, request: ChatRequest) -> dict[str, Any] | None:
        """Variables for the template: the request's own, and what its other fields say of the thinking."""
        said: dict[str, Any] = {}
        off = request.thinking is not None and request.thinking.type == "disabled"
        if request.reasoning_effort == "none":
            off = True
        elif request.reasoning_effort is not None:
            said["reasoning_effort"] = request.reasoning_effort
        if request.verbosity is not None:
            said["verbosity"] = request.verbosity
        if off or (request.thinking is not None and request.thinking.type == "enabled"):
            said |= {"enable_thinking": not off, "thinking": not off}
        known = {name: value for name, value in said.items() if name in self._template.variables}
        return {**known, **(request.chat_template_kwargs or {})} or None

    async def _render(self, request: ChatRequest, options: dict[str, Any]) -> ChatPrompt:
        render = partial(self._template.render, request.messages, **options)
        try:
            prompt = await in_proportion(request.body_bytes, render)
        except ChatError as error:
            raise RequestError(error.message, error.param) from error
        return ChatPrompt(prompt.text, prompt.expanded, prompt.add_special)

    def _from(self, prepared: PreparedInput, with_text: bool) -> ChatPrompt:
        info = self._engine.model_info
        extras = prepared.extras()
        if extras and not info.prompt_tensors:
            raise RequestError(
                f"The {info.backend} engine takes prompts of tokens only, but these messages need "
                f"{', '.join(extras)}.",
                "messages",
            )
        tokens = list(prepared.tokens)
        expanded = prepared.prompt
        if expanded is None:
            words = [token for token in tokens if token < info.vocab_size]
            expanded = self._engine.detokenize(words) if with_text else ""
        native = {
            name: value.native() if isinstance(value, Tensor) else value for name, value in extras.items()
        }
        return ChatPrompt(tokens, expanded, add_special=False, extras=native)
