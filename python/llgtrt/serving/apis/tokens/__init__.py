"""Texts to tokens and back, in the forms of vLLM and llama.cpp: ``/tokenize``, ``/detokenize``,
``/tokenizer_info``, and requests rendered to the tokens of their prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import AsyncEngine
from llgtrt.serving.apis.api import Api, ObjectRoute
from llgtrt.serving.apis.tokens.request import DetokenizeRequest, TokenizeRequest
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol import ChatRequest, CompletionRequest
from llgtrt.serving.registry import Models, ModelServices
from llgtrt.serving.tokens import most_tokens

OF_MESSAGES = (
    "tools",
    "documents",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
)
CHUNK = 4096
"""Values that are written by one call, which lets no other thread go on."""


class TokensService:
    """The tokenizers of the models."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def tokenize(self, request: TokenizeRequest) -> bytes:
        """Token ids as JSON.

        Raises:
            RequestError: a field is wrong, or the text is too long.
            OverloadedError: too many texts wait.
        """
        one = self._models.resolve(request.model)
        if sum(given is not None for given in (request.prompt, request.messages, request.content)) != 1:
            raise RequestError("Give one of prompt, messages and content.", "prompt")
        if request.content is not None:
            tokens = await one.tokens.encode(request.content, bool(request.add_special), "content")
        elif request.prompt is not None:
            tokens = await one.tokens.encode(
                request.prompt, request.add_special_tokens is not False, "prompt"
            )
        else:
            tokens = await one.chat.prompt_tokens(_chat(request), request.add_special_tokens)
        return await one.tokens.run(_written, one, tokens, bool(request.return_token_strs))

    async def detokenize(self, request: DetokenizeRequest) -> bytes:
        """The text as JSON.

        Raises:
            RequestError: a token is not in the vocabulary, or there are too many.
            OverloadedError: too many texts wait.
        """
        one = self._models.resolve(request.model)
        return await one.tokens.run(_text, one.engine, request.tokens)

    async def render_chat(self, request: ChatRequest) -> bytes:
        """The tokens of the prompt that a request would have, as JSON.

        Raises:
            RequestError: a field is wrong, or the text is too long.
            OverloadedError: too many texts wait.
        """
        one = self._models.resolve(request.model)
        _not_cut(request.truncate_prompt_tokens)
        special = False if request.add_special_tokens is False else None
        tokens = await one.chat.prompt_tokens(request, special)
        return await one.tokens.run(_rendered, one, tokens)

    async def render_completions(self, request: CompletionRequest) -> bytes:
        """The tokens of each prompt that a request has, as JSON.

        Raises:
            RequestError: a field is wrong, or a text is too long.
            OverloadedError: too many texts wait.
        """
        one = self._models.resolve(request.model)
        _not_cut(request.truncate_prompt_tokens)
        special = request.add_special_tokens is not False
        prompts = []
        for prompt in await one.completions.prompts(request):
            if isinstance(prompt, str):
                prompts.append(await one.tokens.encode(prompt, special, "prompt"))
            else:
                prompts.append(prompt)
        return await one.tokens.run(_rendered_each, one, prompts)

    async def info(self, request: dict[str, str]) -> bytes:
        """What clients that make prompts themselves have to know, with the names of tokenizer_config.json.

        Raises:
            RequestError: the model is not served.
        """
        one = self._models.resolve(request.get("model"))
        known = one.engine.model_info
        return to_json(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": known.bos_token,
                "eos_token": known.eos_token,
                "additional_special_tokens": known.special_tokens,
                "vocab_size": known.vocab_size,
                "model_max_length": one.model.max_sequence_tokens,
                "chat_template": one.chat.template.source,
            }
        )


def tokens_api(models: Models) -> Api:
    """The API over the tokenizer of each model."""
    service = TokensService(models)
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
            ObjectRoute(
                "POST",
                "/v1/chat/completions/render",
                "Tokens of the prompt that a request would have",
                "The model and the ids.",
                service.render_chat,
                ChatRequest,
            ),
            ObjectRoute(
                "POST",
                "/v1/completions/render",
                "Tokens of the prompts that a request would have",
                "A list with the model and the ids of each prompt.",
                service.render_completions,
                CompletionRequest,
                lists=True,
            ),
            ObjectRoute(
                "GET",
                "/tokenizer_info",
                "Describe the tokenizer",
                "Control tokens, the size of the vocabulary, the context, the chat template.",
                service.info,
                query=("model",),
            ),
        ),
    )


def _chat(request: TokenizeRequest) -> ChatRequest:
    given = {name: getattr(request, name) for name in OF_MESSAGES if getattr(request, name) is not None}
    asked = ChatRequest.model_construct(model=request.model, messages=request.messages or [], **given)
    asked._body_bytes = request.body_bytes
    return asked


def _written(one: ModelServices, tokens: list[int], with_texts: bool) -> bytes:
    head = {"count": len(tokens), "max_model_len": one.model.max_sequence_tokens}
    texts = b"null"
    if with_texts:
        texts = _array([one.engine.detokenize([token]) for token in tokens])
    return to_json(head)[:-1] + b',"tokens":' + _array(tokens) + b',"token_strs":' + texts + b"}"


def _rendered(one: ModelServices, tokens: list[int]) -> bytes:
    return to_json({"model": one.model.name})[:-1] + b',"token_ids":' + _array(tokens) + b"}"


def _rendered_each(one: ModelServices, prompts: list[list[int]]) -> bytes:
    return b"[" + b",".join(_rendered(one, tokens) for tokens in prompts) + b"]"


def _not_cut(most: int | None) -> None:
    if most is not None:
        field = "truncate_prompt_tokens"
        raise RequestError(f"{field}: prompts are rendered whole.", field)


def _text(engine: AsyncEngine, tokens: Any) -> bytes:
    most = most_tokens(engine)
    if not isinstance(tokens, list):
        raise RequestError("tokens must be an array of token ids.", "tokens")
    if len(tokens) > most:
        raise RequestError(f"tokens may hold at most {most} tokens.", "tokens")
    size = engine.model_info.vocab_size
    for index, token in enumerate(tokens):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
            at = f"tokens[{index}]"
            raise RequestError(f"{at} must be a token id from 0 to {size - 1}.", at)
    text = engine.detokenize(tokens)
    # The second is llama.cpp's name of it.
    return to_json({"prompt": text, "content": text})


def _array(values: Sequence[Any]) -> bytes:
    def parts() -> Iterator[bytes]:
        for start in range(0, len(values), CHUNK):
            yield to_json(values[start : start + CHUNK])[1:-1]

    return b"[" + b",".join(parts()) + b"]"
