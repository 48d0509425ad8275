"""Continue a text: the use case behind ``/v1/completions``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llgtrt.config.generation import SamplingDefaults
from llgtrt.engine import AsyncEngine, ChoiceDelta, Delta, GenerateRequest, Handover, ServerFields
from llgtrt.hooks import HookRunner, LogitsProcessors
from llgtrt.serving.answers import control_tokens, renamed
from llgtrt.serving.beams import BeamPlan, BeamRequest, beam_plan, check_beams, start_beams
from llgtrt.serving.completion_output import CompletionOutput
from llgtrt.serving.core_request import CoreRequest, core_request
from llgtrt.serving.disaggregation import Disaggregation, Part, requested_part, response_of_part
from llgtrt.serving.errors import RequestError
from llgtrt.serving.fill_in import fill_in_marks, filled_in
from llgtrt.serving.generation import (
    Generation,
    Traits,
    logprobs_object,
    receipt_member,
    response_object,
    token_members,
)
from llgtrt.serving.hooked import HookedGeneration, start_hooked
from llgtrt.serving.models import ServedModel, first_chunk_fields
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.output import Output, ResponseHead
from llgtrt.serving.protocol import CompletionRequest, Constraint, resolve_constraint
from llgtrt.serving.protocol.completion import prompts_of
from llgtrt.serving.sampling import (
    DEFAULT_COMPLETION_TOKENS,
    OPENAI,
    TokenLimits,
    check_choices,
    continuous_usage,
    new_response_id,
    now,
)
from llgtrt.tools.markup import with_control


@dataclass(frozen=True, slots=True)
class _Plan:
    """A checked request, before it has a place in the queue.

    Attributes:
        name: the model's name in the answer.
        expanded: the prompts as text, where the request asks for them.
        best_of: answers per prompt to return of those that are generated, if not all.
        beams: how answers are searched, if they are.
        part: the part of the answer that is asked for, if not all.
        handover: what another server handed over.
        core: what the core is asked.
    """

    name: str
    adapter: str | None
    prompts: list[str | list[int]]
    sequences: int
    prompt_logprobs: bool
    constraint: Constraint | None
    expanded: str | list[str] | None
    best_of: int | None
    beams: BeamPlan | None
    part: Part | None
    handover: Handover | None
    core: CoreRequest


class CompletionService:
    """Starts completions on one model."""

    def __init__(
        self,
        engine: AsyncEngine,
        model: ServedModel,
        *,
        limits: TokenLimits,
        defaults: SamplingDefaults = OPENAI,
        receipts: bool = True,
        hook: HookRunner | None = None,
        processors: LogitsProcessors | None = None,
        disaggregation: Disaggregation | None = None,
    ) -> None:
        self._engine = engine
        self._control = control_tokens(engine)
        self._receipts = receipts
        self._model = model
        self._limits = limits
        self._defaults = defaults
        self._hook = hook
        self._processors = processors or LogitsProcessors()
        self._disaggregation = disaggregation

    async def start(
        self,
        request: CompletionRequest,
        output: Output | None = None,
        constraint: Constraint | None = None,
        *,
        probe: bool = False,
        extra: ServerFields | None = None,
    ) -> Generation:
        """Checks a request, reserves its place and hands it to the core.

        Args:
            request: what is asked for.
            output: writes the answer; None: it has OpenAI's form.
            constraint: one that the request has under names of its own.
            probe: the server asks itself, which is nothing for the hook.
            extra: members of the core's request that another API has.

        Raises:
            RequestError: a field is wrong.
            HookError: the hook refuses it, or fails.
            LlgtrtError: the core refuses: no room, shutting down, dead.
        """
        if self._hook is None or probe:
            return await self._start(request, output, constraint, extra, None)

        async def start(changed: CompletionRequest, hooked: HookedGeneration) -> Generation:
            return await self._start(changed, output, constraint, extra, hooked)

        return await start_hooked(self._hook, request, start)

    async def prompts(self, request: CompletionRequest) -> list[str | list[int]]:
        """The prompts of a request as texts, or as tokens where it gives those.

        Raises:
            RequestError: a field is wrong.
        """
        plan = await in_proportion(request.body_bytes, self._plan, request, None)
        return plan.prompts

    async def _start(
        self,
        request: CompletionRequest,
        output: Output | None,
        constraint: Constraint | None,
        extra: ServerFields | None,
        hooked: HookedGeneration | None,
    ) -> Generation:
        size = request.body_bytes
        plan = await in_proportion(size, self._plan, request, constraint)
        plan.core.fields.update(extra or {})
        permit = self._engine.reserve(plan.sequences)
        await plan.core.make_processors(self._processors, plan.sequences)
        head = ResponseHead(new_response_id("cmpl"), now(), plan.name, self._model.system_fingerprint)
        continuous = continuous_usage(request)
        named = request.skip_special_tokens is False
        core_writes = (
            output is None and hooked is None and not (continuous or request.return_token_ids or named)
        )
        if plan.beams is not None:
            core_writes = False
            # Another API's form has a place for each answer.
            beams = replace(plan.beams, filled=output is not None)
            stream = start_beams(self._engine, self._beam_request(request, plan, beams), permit)
        else:
            generate = await in_proportion(size, self._generate_request, request, plan, head, core_writes)
            stream = self._engine.submit(generate, permit, plan.adapter)
        choice = completion_choice_with_control if named else completion_choice
        build: Callable[[Delta], dict[str, Any]]
        build = partial(response_object, "text_completion", head, plan.expanded, choice)
        if plan.best_of is not None:
            build = partial(
                best_response, plan.best_of, len(plan.prompts), request.logprobs is not None, build
            )
        if plan.part is not None and self._disaggregation is not None:
            build = response_of_part(self._disaggregation, plan.part, build, chat=False)
        if hooked is not None:
            hooked.request.constrained = plan.constraint is not None
        if output is None and request.stream and not core_writes:
            output = CompletionOutput(
                head.members("text_completion"),
                choice,
                build,
                plan.core.include_usage,
                plan.expanded,
                continuous,
            )
        kind = None if plan.constraint is None else plan.constraint.grammar.kind
        traits = Traits("text_completion", plan.name, head.response_id, request, kind)
        generation = Generation(stream, bool(request.stream), build, output, traits=traits)
        generation.splices = plan.best_of is None and plan.part is None
        if plan.constraint is not None and plan.constraint.places:
            generation.explain = renamed(plan.constraint.places)
        return generation

    def _plan(self, request: CompletionRequest, constraint: Constraint | None) -> _Plan:
        """Checks a request. May take long for a long one."""
        name = self._model.resolve(request.model)
        adapter = self._model.adapter(name, request.lora_model)
        info = self._engine.model_info
        core = core_request(
            request,
            info,
            self._limits,
            self._defaults,
            adapter=adapter,
            default_tokens=DEFAULT_COMPLETION_TOKENS,
            processors=self._processors,
        )
        best_of = None if request.use_beam_search else _best_of(request)
        if best_of is not None:
            core.fields["n"] = request.best_of
        longest = info.max_sequence_tokens if core.most_prompt_tokens is None else None
        prompts = prompts_of(request.prompt, self._limits.max_n, info.vocab_size, longest)
        if request.suffix:
            if core.most_prompt_tokens is not None:
                field = "truncate_prompt_tokens"
                raise RequestError(f"{field} cannot be combined with suffix.", field)
            prompts = filled_in(request, prompts, fill_in_marks(info))
        if "" in prompts and info.bos_token is None:
            raise RequestError("prompt is empty, and this model has no token that begins a text.", "prompt")
        part = requested_part(self._disaggregation, request, request.disaggregated_params, name, adapter)
        handover = self._divide(part, prompts, core)
        constraint = constraint or resolve_constraint(request, self._control)
        core.follow(constraint)
        beams = beam_plan(request, request.best_of, constrained=constraint is not None)
        check_beams(beams, info, constrained=constraint is not None)
        sequences = check_choices(core.n if beams is None else beams.width, len(prompts), self._limits.max_n)
        if core.asked == 0 and (not request.echo or constraint is not None):
            raise RequestError(
                "max_tokens may be 0 only with echo and without a constraint: nothing is generated then.",
                "max_tokens",
            )
        prompt_logprobs = bool(request.echo) and request.logprobs is not None
        if prompt_logprobs and not info.prompt_logprobs:
            raise RequestError(
                "This engine has no log-probabilities of the prompt: echo or logprobs, not both.", "echo"
            )
        expanded = [self._text(prompt) for prompt in prompts] if request.return_expanded_prompt else None
        return _Plan(
            name=name,
            adapter=adapter,
            prompts=prompts,
            sequences=sequences,
            prompt_logprobs=prompt_logprobs,
            constraint=constraint,
            expanded=_single(expanded),
            best_of=best_of,
            beams=beams,
            part=part,
            handover=handover,
            core=core,
        )

    def _divide(
        self, part: Part | None, prompts: list[str | list[int]], core: CoreRequest
    ) -> Handover | None:
        """Asks the core for the part; what another server handed over, where the part goes on from that."""
        if part is None or self._disaggregation is None:
            return None
        if len(prompts) > 1:
            raise RequestError("Only one prompt can be divided between servers.", "prompt")
        if part.context:
            core.fields.update(context_only=True, return_token_ids=True)
            return None
        if isinstance(prompts[0], str):
            raise RequestError(
                "generation_only needs the prompt as token ids: the prompt_token_ids of the context server.",
                "prompt",
            )
        return self._disaggregation.open(part, prompts[0])

    def _beam_request(self, request: CompletionRequest, plan: _Plan, beams: BeamPlan) -> BeamRequest:
        constraint = plan.constraint
        return BeamRequest(
            plan=beams,
            core=plan.core,
            prompts=plan.prompts,
            add_special=request.add_special_tokens is not False,
            grammar=None if constraint is None else constraint.grammar,
            grammar_param=None if constraint is None or constraint.places else constraint.param,
            adapter=plan.adapter,
            logprobs=request.logprobs,
            control_text=request.skip_special_tokens is False,
            completion=True,
            receipt=constraint.grammar.kind if constraint is not None and self._receipts else None,
        )

    def _generate_request(
        self,
        request: CompletionRequest,
        plan: _Plan,
        head: ResponseHead,
        core_writes: bool,
    ) -> GenerateRequest:
        constraint = plan.constraint
        return plan.core.build(
            plan.prompts,
            head=head,
            logprobs=0 if plan.best_of is not None and request.logprobs is None else request.logprobs,
            grammar=None if constraint is None else constraint.grammar,
            handover=plan.handover,
            echo=bool(request.echo),
            echo_logprobs=plan.prompt_logprobs,
            grammar_param=None if constraint is None or constraint.places else constraint.param,
            receipt=constraint.grammar.kind if constraint is not None and self._receipts else None,
            add_special=request.add_special_tokens is not False,
            control_text=request.skip_special_tokens is False,
            output="final" if not request.stream else "completion_sse" if core_writes else "deltas",
            logprobs_form="completion",
            first_chunk_fields=first_chunk_fields(plan.expanded),
        )

    def _text(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self._engine.detokenize(prompt)


def completion_choice(delta: ChoiceDelta) -> dict[str, Any]:
    """One member of ``choices``."""
    return {
        "index": delta.index,
        "text": delta.text,
        "logprobs": logprobs_object(delta),
        "finish_reason": delta.finish_reason,
        "stop_reason": delta.stop_reason,
        **token_members(delta),
        **receipt_member(delta),
    }


def completion_choice_with_control(delta: ChoiceDelta) -> dict[str, Any]:
    """One member of ``choices``, with the control tokens of its text."""
    return {**completion_choice(delta), "text": with_control(delta.text)}


def _single(expanded: list[str] | None) -> str | list[str] | None:
    return expanded[0] if expanded is not None and len(expanded) == 1 else expanded


def _best_of(request: CompletionRequest) -> int | None:
    """How many answers to return of ``best_of``; ``None``: all that are generated."""
    n = request.n or 1
    if request.best_of in (None, 0, n):
        return None
    assert request.best_of is not None
    if request.best_of < n:
        raise RequestError("best_of is less than n.", "best_of")
    for name in ("stream", "echo"):
        if getattr(request, name):
            raise RequestError(f"best_of above n cannot be combined with {name}.", "best_of")
    return n


def best_response(
    n: int, prompts: int, with_logprobs: bool, build: Callable[[Delta], dict[str, Any]], delta: Delta
) -> dict[str, Any]:
    """The response with the ``n`` choices of each prompt whose tokens are likeliest on average."""
    response = build(delta)
    choices = response["choices"]
    each = len(choices) // prompts
    kept = []
    for start in range(0, len(choices), each):
        best = sorted(choices[start : start + each], key=_likelihood, reverse=True)[:n]
        kept += best
    for index, choice in enumerate(kept):
        choice["index"] = index
        if not with_logprobs:
            choice["logprobs"] = None
    response["choices"] = kept
    return response


def _likelihood(choice: dict[str, Any]) -> float:
    """The mean log-probability of an answer's tokens."""
    values = choice["logprobs"]["token_logprobs"]
    return sum(values) / len(values) if values else -math.inf
