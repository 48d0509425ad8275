"""Answer a conversation: the use case behind ``/v1/chat/completions``."""

from __future__ import annotations

from functools import partial
from typing import Any

from llgtrt.engine import AsyncEngine, ChoiceDelta, GenerateRequest
from llgtrt.serving.answers import AnswerFormats, plan_grammar
from llgtrt.serving.chat_output import ChatAnswer, ChatResponse, ChatStream
from llgtrt.serving.errors import RequestError
from llgtrt.serving.generation import Generation, logprobs_object, response_object
from llgtrt.serving.models import ServedModel, first_chunk_fields
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.prompt import ChatPrompts
from llgtrt.serving.protocol import ChatRequest, resolve_constraint
from llgtrt.serving.protocol.tool_use import resolve_tools
from llgtrt.serving.sampling import (
    TokenLimits,
    asked_tokens,
    check_choices,
    engine_arguments,
    generation_arguments,
    new_response_id,
    now,
)


class ChatService:
    """Starts chat completions on one model."""

    def __init__(
        self,
        engine: AsyncEngine,
        model: ServedModel,
        prompts: ChatPrompts,
        *,
        formats: AnswerFormats | None = None,
        limits: TokenLimits,
    ) -> None:
        self._engine = engine
        self._model = model
        self._prompts = prompts
        self._formats = formats or AnswerFormats()
        self._limits = limits

    @property
    def starts_slowly(self) -> bool:
        """Whether :meth:`start` may take long, so that its client may leave meanwhile."""
        return self._prompts.has_processor

    async def start(self, request: ChatRequest) -> Generation:
        """Checks a request, reserves its place, renders the prompt and hands it to the core.

        Raises:
            RequestError: a field is wrong.
            ProcessorFailedError: the input processor failed.
            LlgtrtError: the core refuses: no room, shutting down, dead.
        """
        name = self._model.resolve(request.model)
        adapter = self._model.adapter(name, request.lora_model)
        _refuse_unsupported(request)
        arguments = generation_arguments(request, self._engine.model_info.vocab_size)
        sequences = check_choices(arguments["n"], 1, self._limits.max_n)
        asked = asked_tokens(request)
        if asked == 0:
            raise RequestError("An answer must have room for at least one token.", "max_tokens")
        length = self._limits.max_tokens(asked, None)
        size = request.body_bytes
        constraint = await in_proportion(size, resolve_constraint, request)
        use = await in_proportion(size, resolve_tools, request)
        budget = None if request.thinking is None else request.thinking.budget_tokens
        opening = self._formats.opening(use, constraint, budget)
        logprobs = _logprobs(request)
        engine_options = engine_arguments(request, logprobs)
        streaming = bool(request.stream)

        # Before any work that a full server would do in vain. An unused permit gives its place back.
        permit = self._engine.reserve(sequences)
        json_schema = None if constraint is None else constraint.json_schema
        shown = () if use is None else use.shown
        prompt = await self._prompts.make(request, json_schema, arguments["n"], length["max_tokens"], shown)
        if opening:
            prompt = prompt.followed_by(opening)
        expanded = prompt.expanded if request.return_expanded_prompt else None
        response_id = new_response_id("chatcmpl")
        created = now()
        grammar = None if constraint is None else constraint.grammar
        grammar_param = None if constraint is None else constraint.param
        plan = await in_proportion(size, self._formats.plan, use, constraint, prompt.expanded, budget)
        explain = None
        if plan is not None and plan.constrained:
            param = use.param if use is not None else grammar_param or "messages"
            grammar, explain = await in_proportion(size, plan_grammar, plan, param)
            grammar_param = None
        structured = plan is not None and (bool(plan.tools) or plan.thinking is not None)
        stream = self._engine.submit(
            GenerateRequest(
                prompts=[prompt.prompt],
                add_special=prompt.add_special,
                logprobs=logprobs,
                grammar=grammar,
                grammar_param=grammar_param,
                output="final" if not streaming else "deltas" if structured else "chat_sse",
                control_text=structured and plan is not None and plan.names_control,
                response_id=response_id,
                model=name,
                created=created,
                first_chunk_fields=first_chunk_fields(expanded),
                lora_model=adapter,
                load_lora_weights=request.load_lora_weights or "auto",
                **length,
                **arguments,
                **engine_options,
                **prompt.extras,
            ),
            permit,
            adapter,
        )
        generation = Generation(
            stream,
            streaming,
            partial(response_object, "chat.completion", response_id, created, name, expanded, chat_choice),
        )
        if explain is not None:
            generation.explain = explain
        if structured and plan is not None:
            answer = ChatAnswer(
                plan,
                response_id,
                created,
                name,
                expanded,
                legacy=use is not None and use.legacy,
                count_tokens=self._count_tokens,
                include_usage=arguments["include_usage"],
            )
            generation.response = ChatResponse(answer)
            generation.encode = ChatStream(answer)
        return generation

    def _count_tokens(self, text: str) -> int:
        return len(self._engine.encode(text, False))


def chat_choice(delta: ChoiceDelta) -> dict[str, Any]:
    """One member of ``choices``."""
    return {
        "index": delta.index,
        "message": {"role": "assistant", "content": delta.text, "refusal": None},
        "logprobs": logprobs_object(delta),
        "finish_reason": delta.finish_reason,
        "stop_reason": delta.stop_reason,
    }


def _logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs is not None:
        raise RequestError("top_logprobs needs logprobs to be true.", "top_logprobs")
    return None


def _refuse_unsupported(request: ChatRequest) -> None:
    if request.modalities is not None and request.modalities != ["text"]:
        raise RequestError("Only the modality 'text' is supported.", "modalities")
