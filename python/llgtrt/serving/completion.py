"""Continue a text: the use case behind ``/v1/completions``."""

from __future__ import annotations

from functools import partial
from typing import Any

from llgtrt.engine import AsyncEngine, ChoiceDelta, GenerateRequest
from llgtrt.serving.errors import RequestError
from llgtrt.serving.generation import Generation, logprobs_object, response_object
from llgtrt.serving.models import ServedModel, first_chunk_fields
from llgtrt.serving.protocol import CompletionRequest, resolve_constraint
from llgtrt.serving.protocol.completion import prompts_of
from llgtrt.serving.sampling import (
    check_choices,
    check_token_counts,
    engine_arguments,
    generation_arguments,
    new_response_id,
    now,
)

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default of this route."""


class CompletionService:
    """Starts completions on one model."""

    def __init__(
        self, engine: AsyncEngine, model: ServedModel, *, max_n: int, default_max_tokens: int | None = None
    ) -> None:
        self._engine = engine
        self._model = model
        self._max_n = max_n
        self._default_max_tokens = default_max_tokens or DEFAULT_MAX_TOKENS

    async def start(self, request: CompletionRequest) -> Generation:
        """Checks a request and hands it to the core.

        Raises:
            RequestError: a field is wrong.
            LlgtrtError: the core refuses: no room, shutting down, dead.
        """
        name = self._model.resolve(request.model)
        adapter = self._model.adapter(name, request.lora_model)
        info = self._engine.model_info
        _refuse_unsupported(request)
        arguments = generation_arguments(request, info.vocab_size)
        prompts = prompts_of(request.prompt, self._max_n, info.vocab_size, info.max_sequence_tokens)
        sequences = check_choices(arguments["n"], len(prompts), self._max_n)
        max_tokens = request.max_tokens or self._default_max_tokens
        check_token_counts(request, max_tokens, "max_tokens")
        constraint = resolve_constraint(request)
        engine_options = engine_arguments(request, request.logprobs)
        echo = bool(request.echo)
        prompt_logprobs = echo and request.logprobs is not None
        if prompt_logprobs and not info.prompt_logprobs:
            raise RequestError(
                "This engine has no log-probabilities of the prompt: echo or logprobs, not both.", "echo"
            )
        streaming = bool(request.stream)

        permit = self._engine.reserve(sequences)
        expanded = [self._text(prompt) for prompt in prompts] if request.return_expanded_prompt else None
        response_id = new_response_id("cmpl")
        created = now()
        stream = self._engine.submit(
            GenerateRequest(
                prompts=prompts,
                max_tokens=max_tokens,
                logprobs=request.logprobs,
                prompt_logprobs=prompt_logprobs,
                echo=echo,
                grammar=None if constraint is None else constraint.grammar,
                grammar_param=None if constraint is None else constraint.param,
                output="completion_sse" if streaming else "final",
                logprobs_form="completion",
                response_id=response_id,
                model=name,
                created=created,
                first_chunk_fields=first_chunk_fields(_single(expanded)),
                lora_model=adapter,
                load_lora_weights=request.load_lora_weights or "auto",
                **arguments,
                **engine_options,
            ),
            permit,
        )
        build = partial(
            response_object,
            "text_completion",
            response_id,
            created,
            name,
            _single(expanded),
            completion_choice,
        )
        return Generation(stream, streaming, build)

    def _text(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self._engine.detokenize(prompt)


def completion_choice(delta: ChoiceDelta) -> dict[str, Any]:
    """One member of ``choices``."""
    return {
        "index": delta.index,
        "text": delta.text,
        "logprobs": logprobs_object(delta),
        "finish_reason": delta.finish_reason,
    }


def _single(expanded: list[str] | None) -> str | list[str] | None:
    return expanded[0] if expanded is not None and len(expanded) == 1 else expanded


def _refuse_unsupported(request: CompletionRequest) -> None:
    if request.suffix:
        raise RequestError("suffix is not supported.", "suffix")
    if request.best_of is not None and request.best_of > 1 and request.best_of != (request.n or 1):
        raise RequestError("best_of is only supported where it equals n.", "best_of")
