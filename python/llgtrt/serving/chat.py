"""Answer a conversation: the use case behind ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from llgtrt.chat import ChatTemplate
from llgtrt.config.generation import SamplingDefaults
from llgtrt.engine import AsyncEngine, ChoiceDelta, Delta, Handover
from llgtrt.hooks import HookRunner, LogitsProcessors
from llgtrt.serving.answers import AnswerFormats, plan_grammar, renamed
from llgtrt.serving.beams import BeamRequest, beam_plan, check_beams, start_beams
from llgtrt.serving.chat_output import ChatEncoder
from llgtrt.serving.core_request import CoreRequest, core_request
from llgtrt.serving.disaggregation import (
    Disaggregation,
    Part,
    in_trtllm_form,
    requested_part,
    response_of_part,
)
from llgtrt.serving.errors import RequestError
from llgtrt.serving.generation import Generation, Traits, logprobs_object, receipt_member, response_object
from llgtrt.serving.hooked import HookedGeneration, start_hooked
from llgtrt.serving.models import ServedModel, first_chunk_fields
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.output import AnswerHead, AnswerReader, EncodedAnswer, Encoder, ResponseHead
from llgtrt.serving.prompt import ChatPrompt, ChatPrompts
from llgtrt.serving.protocol import ChatRequest, Constraint, resolve_constraint
from llgtrt.serving.protocol.completion import prompts_of
from llgtrt.serving.protocol.tool_use import ToolUse, resolve_tools
from llgtrt.serving.sampling import OPENAI, TokenLimits, check_choices, continuous_usage, new_response_id, now
from llgtrt.serving.tokens import TokenWork
from llgtrt.tools import AnswerPlan

EncoderFactory = Callable[[AnswerHead], Encoder]
"""Makes the encoder of an answer, once it is known what the answer may consist of."""


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
        defaults: SamplingDefaults = OPENAI,
        tokens: TokenWork,
        receipts: bool = True,
        hook: HookRunner | None = None,
        processors: LogitsProcessors | None = None,
        disaggregation: Disaggregation | None = None,
    ) -> None:
        self._engine = engine
        self._model = model
        self._prompts = prompts
        self._formats = formats or AnswerFormats()
        self._limits = limits
        self._defaults = defaults
        self._tokens = tokens
        self._hook = hook
        self._processors = processors or LogitsProcessors()
        self._disaggregation = disaggregation
        self._receipts = receipts

    @property
    def starts_slowly(self) -> bool:
        """Whether :meth:`start` may take long, so that its client may leave meanwhile."""
        return self._prompts.has_processor or (self._hook is not None and self._hook.has("on_request"))

    @property
    def can_think(self) -> bool:
        """Whether the model has thinking tags of its own."""
        return self._formats.reasoning is not None

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and answer together."""
        return self._model.max_sequence_tokens

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template."""
        return self._prompts.template

    async def prompt_tokens(self, request: ChatRequest, add_special: bool | None = None) -> list[int]:
        """The tokens of a conversation's prompt.

        Args:
            request: the conversation.
            add_special: whether the tokenizer may put its BOS token in front; ``None``: as an answer does.

        Raises:
            RequestError: a field is wrong.
            OverloadedError: too many texts wait.
        """
        prompt = await self._prompt(request)
        if not isinstance(prompt.prompt, str):
            return prompt.prompt
        special = prompt.add_special if add_special is None else add_special
        return await self._tokens.encode(prompt.prompt, special)

    async def prompt_text(self, request: ChatRequest) -> str:
        """The prompt of a conversation as text.

        Raises:
            RequestError: a field is wrong.
        """
        return (await self._prompt(request)).expanded

    async def _prompt(self, request: ChatRequest) -> ChatPrompt:
        self._model.resolve(request.model)
        _refuse_tokens(request)
        size = request.body_bytes
        constraint = await in_proportion(size, resolve_constraint, request, self._formats.control)
        use = await in_proportion(size, resolve_tools, request)
        json_schema = None if constraint is None else constraint.json_schema
        return await self._prompts.make(request, json_schema, 1, None, () if use is None else use.shown)

    async def start(
        self, request: ChatRequest, encoder: EncoderFactory | None = None, *, response_id: str | None = None
    ) -> Generation:
        """Checks a request, reserves its place, renders the prompt and hands it to the core.

        Args:
            request: what is asked, in the terms of OpenAI's chat.
            encoder: writes the answer in the form of another API than OpenAI's chat.
            response_id: the id of the answer, where that API has one already.

        Raises:
            RequestError: a field is wrong.
            HookError: the hook refuses it, or fails.
            ProcessorFailedError: the input processor failed.
            LlgtrtError: the core refuses: no room, shutting down, dead.
        """
        if self._hook is None:
            return await self._start(request, encoder, response_id, None)

        async def start(changed: ChatRequest, hooked: HookedGeneration) -> Generation:
            return await self._start(changed, encoder, response_id, hooked)

        return await start_hooked(self._hook, request, start)

    async def _start(
        self,
        request: ChatRequest,
        encoder: EncoderFactory | None,
        response_id: str | None,
        hooked: HookedGeneration | None,
    ) -> Generation:
        name = self._model.resolve(request.model)
        adapter = self._model.adapter(name, request.lora_model)
        _refuse_unsupported(request)
        info = self._engine.model_info
        core = core_request(
            request, info, self._limits, self._defaults, adapter=adapter, processors=self._processors
        )
        if core.asked == 0:
            raise RequestError("An answer must have room for at least one token.", "max_tokens")
        part = requested_part(self._disaggregation, request, request.disaggregated_params, name, adapter)
        handover = self._divide(part, request, core)
        size = request.body_bytes
        constraint = await in_proportion(size, resolve_constraint, request, self._formats.control)
        use = await in_proportion(size, resolve_tools, request)
        if constraint is not None and constraint.of_tokens and use is not None and use.callable:
            raise RequestError(f"{constraint.param} cannot be combined with tools.", constraint.param)
        core.follow(constraint)
        budget = request.budget_tokens
        opening = self._formats.opening(use, constraint, budget)
        logprobs = _logprobs(request)
        streaming = bool(request.stream)

        if request.best_of not in (None, 0, 1) and not request.use_beam_search:
            raise RequestError("best_of needs use_beam_search in chats.", "best_of")
        constrained = constraint is not None or (use is not None and bool(use.callable))
        beams = beam_plan(request, request.best_of, constrained=constrained)
        check_beams(beams, info, constrained=constrained)
        if beams is not None and encoder is not None:
            raise RequestError("use_beam_search is for chat and completions.", "use_beam_search")
        sequences = check_choices(core.n if beams is None else beams.width, 1, self._limits.max_n)

        # Before any work that a full server would do in vain. An unused permit gives its place back.
        permit = self._engine.reserve(sequences)
        await core.make_processors(self._processors, sequences)
        json_schema = None if constraint is None else constraint.json_schema
        shown = () if use is None else use.shown
        prompt = await self._prompts.make(request, json_schema, core.n, core.max_tokens, shown)
        if prompt.extras and request.truncate_prompt_tokens is not None:
            raise RequestError(
                "truncate_prompt_tokens: this server's input processor made a prompt that cannot be cut.",
                "truncate_prompt_tokens",
            )
        if prompt.extras and beams is not None:
            raise RequestError(
                "use_beam_search: this server's input processor made more than tokens.", "use_beam_search"
            )
        if prompt.extras and part is not None:
            raise RequestError(
                "This server's input processor made more than tokens, which cannot be divided.",
                "disaggregated_params",
            )
        if opening:
            prompt = prompt.followed_by(opening)
        if handover is not None:
            # With what the context server's template and tokenizer made of the same messages.
            prompt = replace(prompt, prompt=request.prompt_token_ids)
        expanded = prompt.expanded if request.return_expanded_prompt else None
        response_id = response_id or new_response_id("chatcmpl")
        head = ResponseHead(response_id, now(), name, self._model.system_fingerprint)
        grammar = None if constraint is None else constraint.grammar
        grammar_param = None if constraint is None else constraint.param
        plan = await in_proportion(size, self._formats.plan, use, constraint, prompt.expanded, budget)
        explain = None
        if plan is not None and plan.constrained:
            param = use.param if use is not None else grammar_param or "messages"
            grammar, explain = await in_proportion(size, plan_grammar, plan, param)
            grammar_param = None
        elif constraint is not None and constraint.places:
            grammar_param, explain = None, renamed(constraint.places)
        continuous = continuous_usage(request)
        reported = bool(request.return_token_ids) or request.prompt_logprobs is not None
        if reported and encoder is not None:
            field = "return_token_ids" if request.return_token_ids else "prompt_logprobs"
            raise RequestError(f"{field} is for chat and completions; this API has no place for it.", field)
        show_control = request.skip_special_tokens is False
        read_here = encoder is not None or reported or show_control
        read_here = read_here or (streaming and (hooked is not None or continuous or beams is not None))
        if read_here:
            plan = plan or AnswerPlan(self._formats.markup)
        if show_control and plan is not None:
            plan = replace(plan, show_control=True)
        if hooked is not None:
            hooked.request.constrained = grammar is not None
        structured = read_here or (plan is not None and (bool(plan.tools) or plan.thinking is not None))
        # The beginning of an answer is no answer yet; whoever goes on with it reads it.
        structured = structured and (part is None or not part.context)
        kind = _receipt_kind(constraint, use)
        add_special = prompt.add_special and request.add_special_tokens is not False
        control_text = structured and plan is not None and plan.names_control
        if beams is not None:
            stream = start_beams(
                self._engine,
                BeamRequest(
                    plan=beams,
                    core=core,
                    prompts=[prompt.prompt],
                    add_special=add_special,
                    grammar=grammar,
                    grammar_param=grammar_param,
                    adapter=adapter,
                    logprobs=logprobs,
                    control_text=control_text,
                    completion=False,
                    receipt=kind if self._receipts else None,
                ),
                permit,
            )
        else:
            generate = await in_proportion(
                size,
                core.build,
                [prompt.prompt],
                head=head,
                logprobs=logprobs,
                grammar=grammar,
                extras=prompt.extras,
                handover=handover,
                add_special=add_special,
                grammar_param=grammar_param,
                receipt=kind if self._receipts else None,
                output="final" if not streaming else "deltas" if structured else "chat_sse",
                control_text=control_text,
                first_chunk_fields=first_chunk_fields(expanded),
            )
            stream = self._engine.submit(generate, permit, adapter)
        build: Callable[[Delta], dict[str, Any]]
        build = partial(response_object, "chat.completion", head, expanded, chat_choice)
        if part is not None and self._disaggregation is not None:
            build = response_of_part(self._disaggregation, part, build, chat=True)
        generation = Generation(stream, streaming, build, reshape=None if part is None else in_trtllm_form)
        generation.traits = Traits("chat", name, response_id, request, kind)
        generation.splices = part is None
        if explain is not None:
            generation.explain = explain
        if structured and plan is not None:
            answer = AnswerHead(head, plan, expanded, core.include_usage, continuous)
            if encoder is None:
                encoder = partial(
                    ChatEncoder,
                    legacy=use is not None and use.legacy,
                    with_reasoning=request.include_reasoning is not False,
                )
            generation.output = EncodedAnswer(AnswerReader(plan, self._count_tokens), encoder(answer))
        return generation

    def _divide(self, part: Part | None, request: ChatRequest, core: CoreRequest) -> Handover | None:
        """Asks the core for the part; what another server handed over, where the part goes on from that."""
        if part is None or part.context or self._disaggregation is None:
            _refuse_tokens(request)
            if part is not None:
                core.fields.update(context_only=True, return_token_ids=True)
            return None
        given = request.prompt_token_ids
        if given is None:
            raise RequestError("generation_only needs prompt_token_ids.", "prompt_token_ids")
        info = self._engine.model_info
        longest = info.max_sequence_tokens
        (tokens,) = prompts_of([given], 1, info.vocab_size, longest, param="prompt_token_ids")
        if isinstance(tokens, str):
            raise RequestError("prompt_token_ids must be token ids.", "prompt_token_ids")
        return self._disaggregation.open(part, tokens)

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
        **receipt_member(delta),
    }


def _receipt_kind(constraint: Constraint | None, use: ToolUse | None) -> str | None:
    """What constrains the answer, in the request's terms: the grammar may be one that is made of it."""
    if use is not None and use.callable:
        return "tools"
    return None if constraint is None else constraint.grammar.kind


def _logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs is not None:
        raise RequestError("top_logprobs needs logprobs to be true.", "top_logprobs")
    return None


def _refuse_tokens(request: ChatRequest) -> None:
    if request.prompt_token_ids is not None:
        raise RequestError(
            "prompt_token_ids needs disaggregated_params of generation_only; else token ids go into the "
            "prompt of /v1/completions.",
            "prompt_token_ids",
        )


def _refuse_unsupported(request: ChatRequest) -> None:
    if request.modalities is not None and request.modalities != ["text"]:
        raise RequestError("Only the modality 'text' is supported.", "modalities")
