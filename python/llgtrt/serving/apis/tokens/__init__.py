"""Texts to tokens and back, in the form of vLLM: ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import AsyncEngine
from llgtrt.serving.apis.api import Api, ObjectRoute
from llgtrt.serving.apis.tokens.request import DetokenizeRequest, TokenizeRequest
from llgtrt.serving.chat import ChatService
from llgtrt.serving.errors import RequestError
from llgtrt.serving.models import ServedModel
from llgtrt.serving.protocol import ChatRequest
from llgtrt.serving.tokens import TokenWork, most_tokens

OF_MESSAGES = ("tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
CHUNK = 4096
"""Values that are written by one call, which lets no other thread go on."""


class TokensService:
    """The tokenizer of one model."""

    def __init__(self, engine: AsyncEngine, model: ServedModel, chat: ChatService, work: TokenWork) -> None:
        self._engine = engine
        self._model = model
        self._chat = chat
        self._work = work

    async def tokenize(self, request: TokenizeRequest) -> bytes:
        """Token ids as JSON.

        Raises:
            RequestError: a field is wrong, or the text is too long.
            OverloadedError: too many texts wait.
        """
        self._model.resolve(request.model)
        if (request.prompt is None) == (request.messages is None):
            raise RequestError("Give prompt or messages.", "prompt")
        if request.prompt is not None:
            tokens = await self._work.encode(
                request.prompt, request.add_special_tokens is not False, "prompt"
            )
        else:
            tokens = await self._chat.prompt_tokens(_chat(request), request.add_special_tokens)
        return await self._work.run(self._written, tokens, bool(request.return_token_strs))

    async def detokenize(self, request: DetokenizeRequest) -> bytes:
        """The text as JSON.

        Raises:
            RequestError: a token is not in the vocabulary, or there are too many.
            OverloadedError: too many texts wait.
        """
        self._model.resolve(request.model)
        return await self._work.run(self._text, request.tokens)

    def _written(self, tokens: list[int], with_texts: bool) -> bytes:
        head = {"count": len(tokens), "max_model_len": self._model.max_sequence_tokens}
        texts = b"null"
        if with_texts:
            texts = _array([self._engine.detokenize([token]) for token in tokens])
        return to_json(head)[:-1] + b',"tokens":' + _array(tokens) + b',"token_strs":' + texts + b"}"

    def _text(self, tokens: Any) -> bytes:
        most = most_tokens(self._engine)
        if not isinstance(tokens, list):
            raise RequestError("tokens must be an array of token ids.", "tokens")
        if len(tokens) > most:
            raise RequestError(f"tokens may hold at most {most} tokens.", "tokens")
        size = self._engine.model_info.vocab_size
        for index, token in enumerate(tokens):
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
                at = f"tokens[{index}]"
                raise RequestError(f"{at} must be a token id from 0 to {size - 1}.", at)
        return to_json({"prompt": self._engine.detokenize(tokens)})


def tokens_api(engine: AsyncEngine, model: ServedModel, chat: ChatService, work: TokenWork) -> Api:
    """The API over the tokenizer of one model."""
    service = TokensService(engine, model, chat, work)
    return Api(
        name="tokens",
        routes=(
            ObjectRoute(
                "POST",
                "/tokenize",
                "Tokens of a text or of a conversation's prompt",
                "Their number, the context, the ids.",
                service.tokenize,
                TokenizeRequest,
            ),
            ObjectRoute(
                "POST",
                "/detokenize",
                "The text of tokens",
                "The text.",
                service.detokenize,
                DetokenizeRequest,
            ),
        ),
    )


def _chat(request: TokenizeRequest) -> ChatRequest:
    given = {name: getattr(request, name) for name in OF_MESSAGES if getattr(request, name) is not None}
    asked = ChatRequest.model_construct(model=request.model, messages=request.messages or [], **given)
    asked._body_bytes = request.body_bytes
    return asked


def _array(values: Sequence[Any]) -> bytes:
    def parts() -> Iterator[bytes]:
        for start in range(0, len(values), CHUNK):
            yield to_json(values[start : start + CHUNK])[1:-1]

    return b"[" + b",".join(parts()) + b"]"
