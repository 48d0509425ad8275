"""Answers found by beam search, on any engine: each step of each beam is a request for one token.

The prefix cache makes that cheap: a step evaluates one token of each beam. Under a constraint a step goes on
behind the tokens that its beam has, with the log-probabilities of what the grammar allows there, and only
answers that the grammar calls complete count. Where no beam comes to an end the answer is made without a
search.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from llgtrt.engine import (
    AsyncEngine,
    ComposedChoice,
    ComposedDelta,
    ComposedUsage,
    ConstraintError,
    Delta,
    GrammarError,
    GrammarSpec,
    ModelInfo,
    Permit,
    Stream,
    generate_request,
)
from llgtrt.serving.beam_search import Answer, Beam, BeamRules, NoAnswerError, Said, StopReason, search
from llgtrt.serving.core_request import CoreRequest
from llgtrt.serving.errors import RequestError
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.protocol.fields import GenerationFields

MAX_BEAMS = 16
"""Each beam is a sequence, and each step asks for twice as many likely tokens."""

IMPOSSIBLE = -5000.0
"""Below this a log-probability stands for none (the core writes -9999 for minus infinity)."""

BYTES_PER_TOKEN = 8
"""How much work a token of a prompt is, in bytes of text about."""

HARMLESS: dict[str, tuple[Any, ...]] = {
    "bad_words": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "logit_bias": ([],),
    "logits_processors": ([],),
    "no_repeat_ngram_size": (),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "repeat_penalty": (1,),
    "repetition_penalty": (1,),
    "return_removed_mass": (False,),
}
"""Fields that would change the answers of a search and do not, and the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class BeamPlan:
    """How a request wants to be searched.

    Attributes:
        width: beams, and sequences of the core, per prompt.
        n: answers to return per prompt.
        filled: fewer answers are filled up with empty ones.
    """

    width: int
    n: int
    length_penalty: float
    early_stopping: bool
    filled: bool = False


def beam_plan(request: GenerationFields, best_of: int | None, *, constrained: bool) -> BeamPlan | None:
    """What a request says about beams; None: it wants none.

    Raises:
        RequestError: a field is out of range, or cannot be combined with beams.
    """
    if not request.use_beam_search:
        for name, harmless in (("length_penalty", 1.0), ("early_stopping", False)):
            if getattr(request, name) not in (None, harmless):
                raise RequestError(f"{name} needs use_beam_search.", name)
        return None
    n = request.n or 1
    width = best_of or n
    if width < n:
        raise RequestError("best_of is less than n.", "best_of")
    if width > MAX_BEAMS:
        name = "best_of" if best_of else "n"
        raise RequestError(f"{name}: a search may have {MAX_BEAMS} beams at most, not {width}.", name)
    for name, harmless_values in HARMLESS.items():
        value = getattr(request, name, None)
        if value is not None and value not in harmless_values:
            raise RequestError(f"{name} cannot be combined with use_beam_search.", name)
    if constrained and request.stop:
        raise RequestError("stop cannot be combined with use_beam_search and a constraint.", "stop")
    length_penalty = 1.0 if request.length_penalty is None else request.length_penalty
    return BeamPlan(width, n, length_penalty, request.early_stopping is True)


def check_beams(beams: BeamPlan | None, info: ModelInfo, *, constrained: bool) -> None:
    """Checks that the engine can search.

    Raises:
        RequestError: it knows no log-probabilities of what a constraint allows.
    """
    if beams is not None and constrained and not info.allowed_logprobs:
        raise RequestError(
            f"use_beam_search cannot be combined with a constraint on the {info.backend} engine.",
            "use_beam_search",
        )


@dataclass(frozen=True, slots=True)
class BeamRequest:
    """What is searched.

    Attributes:
        core: what the core is asked of a single answer.
        add_special: the prompts get what the tokenizer adds by itself.
        logprobs: alternatives per token in the answers; None: no log-probabilities.
        control_text: answers show control tokens by name.
        completion: log-probabilities have the form of completions, not of chat.
        receipt: what receipts call the constraint; None: answers have none.
    """

    plan: BeamPlan
    core: CoreRequest
    prompts: list[str | list[int]]
    add_special: bool
    grammar: GrammarSpec | None
    grammar_param: str | None
    adapter: str | None
    logprobs: int | None
    control_text: bool
    completion: bool
    receipt: str | None = None


def start_beams(engine: AsyncEngine, request: BeamRequest, permit: Permit) -> Stream:
    """Starts a search; its stream has one payload, with whole answers.

    Args:
        engine: what generates.
        request: what is searched.
        permit: a place for every beam of every prompt.
    """
    return engine.compose(_Search(engine, request, permit).run())


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt that was evaluated once, with the most tokens that its answers may have."""

    tokens: list[int]
    cached: int
    most: int


class _Search:
    """One request on its way."""

    def __init__(self, engine: AsyncEngine, request: BeamRequest, permit: Permit) -> None:
        self._engine = engine
        self._request = request
        self._permit = permit
        self._fields = request.core.fields
        self._receipts = Receipts()
        # An answer that may be cut anywhere is one wherever it ends.
        self._must_be_complete = request.grammar is not None and self._fields.get("at_limit") != "cut"

    async def run(self) -> ComposedDelta:
        """The only payload."""
        try:
            return await self._run()
        finally:
            # The places come back now, whoever still knows the search, such as the frames of an error.
            del self._permit

    async def _run(self) -> ComposedDelta:
        choices, prompt_tokens, cached, completion_tokens = list[ComposedChoice](), 0, 0, 0
        for prompt in self._request.prompts:
            found = await self._evaluate(prompt)
            self._receipts = Receipts()
            answers = await self._answers(found)
            prompt_tokens += len(found.tokens)
            cached += found.cached
            for answer in answers:
                completion_tokens += _count(answer)
            choices += await in_proportion(
                sum(_count(answer) for answer in answers) * 64, self._choices, found, answers, len(choices)
            )
        return ComposedDelta(choices, ComposedUsage(prompt_tokens, completion_tokens, cached))

    async def _evaluate(self, prompt: str | list[int]) -> _Prompt:
        fields = {
            "max_tokens": 0,
            "answer_tokens": self._request.core.max_tokens,
            "add_special": self._request.add_special,
            "return_token_ids": True,
            # Errors name the field that holds the prompt.
            "logprobs_form": "completion" if self._request.completion else "chat",
        }
        delta = await self._one(self._part(fields), prompt, None)
        tokens = delta.choices[0].prompt_token_ids
        assert tokens is not None
        left = self._engine.model_info.max_sequence_tokens - len(tokens)
        # What comes behind the last token says whether an answer is complete, and takes a place.
        left = left - 1 if self._must_be_complete and left > 1 else left
        most = self._request.core.max_tokens
        return _Prompt(tokens, delta.so_far.cached_tokens, left if most is None else min(most, left))

    async def _answers(self, prompt: _Prompt) -> list[Answer]:
        request, fields = self._request, self._fields
        ends: dict[int, StopReason] = dict.fromkeys(self._engine.model_info.eos_token_ids)
        ignore_eos = bool(fields["sampling"].get("ignore_eos"))
        if ignore_eos and request.grammar is None:
            ends = {}
        # Behind its end a grammar has no way on; what may be cut anywhere goes on around it.
        never_ends = ignore_eos and request.grammar is not None and not self._must_be_complete
        ends |= {token: token for token in fields.get("stop_token_ids") or ()}
        rules = BeamRules(
            width=request.plan.width,
            max_tokens=prompt.most,
            length_penalty=request.plan.length_penalty,
            early_stopping=request.plan.early_stopping,
            min_tokens=prompt.most if never_ends else fields["sampling"].get("min_tokens") or 0,
            end_tokens=ends,
            constrained=self._must_be_complete,
        )

        async def ask(beams: list[Beam]) -> list[Said | None]:
            return await self._ask(prompt, beams)

        find_stop = self._find_stop if fields.get("stop") else None
        try:
            return (await search(rules, ask, find_stop))[: request.plan.n]
        except NoAnswerError:
            return [await self._without_search(prompt, rules)]

    async def _ask(self, prompt: _Prompt, beams: list[Beam]) -> list[Said | None]:
        """One token behind each beam, all at the same time."""
        streams = list[Stream]()
        try:
            for beam in beams:
                # The event loop has its turn between them.
                await asyncio.sleep(0)
                fields = {
                    "max_tokens": 1,
                    "answer_tokens": prompt.most,
                    "generated_tokens": beam.length,
                    "add_special": False,
                }
                tokens = prompt.tokens + beam.tokens()
                streams.append(
                    await self._submit(
                        self._part(fields, 2 * self._request.plan.width), tokens, self._request.grammar
                    )
                )
            said = list[Said | None]()
            for stream, beam in zip(streams, beams, strict=True):
                said.append(await _said(stream, beam, self._receipts))
                await asyncio.sleep(0)
            return said
        finally:
            for stream in streams:
                stream.cancel()

    async def _without_search(self, prompt: _Prompt, rules: BeamRules) -> Answer:
        """The likeliest tokens, one by one: the core can take back what leads nowhere, a search cannot."""
        fields = {"max_tokens": prompt.most, "add_special": False, "return_token_ids": True}
        delta = await self._one(
            self._part(fields, self._request.logprobs or 0), prompt.tokens, self._request.grammar
        )
        choice = delta.choices[0]
        self._receipts.without_search = choice.constraint
        found = from_json(choice.logprobs or '{"logprobs":[],"top":[]}')
        beam = Beam()
        # The token that ended it has no entry, and is not one of the answer's.
        for token, logprob, top in zip(choice.token_ids, found["logprobs"], found["top"], strict=False):
            beam = beam.then(token, logprob, Said(tuple((one, own) for one, own in top)))
        reason = choice.finish_reason or "length"
        return Answer(beam, rules.score(beam.logprob, beam.length), reason, beam.logprob, choice.stop_reason)

    def _part(self, fields: dict[str, Any], logprobs: int | None = None) -> dict[str, Any]:
        """The request of a part of the search."""
        sampling = {"temperature": 0.0, "ignore_eos": True}
        whole = {"max_tokens": None, "most_prompt_tokens": self._fields.get("most_prompt_tokens")}
        part: dict[str, Any] = {
            "n": 1,
            "clamp_max_tokens": self._fields.get("clamp_max_tokens", False),
            "request_id": self._fields.get("request_id", ""),
            "grammar_param": self._request.grammar_param,
            "receipt": self._request.receipt,
            "output": "final",
            "logprobs_form": "tokens",
            **whole,
            **fields,
            "sampling": sampling,
        }
        if not fields["add_special"]:
            # The prompt is known by its tokens, cut where it had to be.
            part["most_prompt_tokens"] = None
        for name in ("at_limit", "options"):
            if self._fields.get(name) is not None:
                part[name] = self._fields[name]
        if logprobs is not None:
            part["sampling"] = {
                **sampling,
                "logprobs": logprobs,
                "allowed_logprobs": self._request.grammar is not None,
            }
        return part

    async def _submit(
        self, fields: dict[str, Any], prompt: str | list[int], grammar: GrammarSpec | None
    ) -> Stream:
        request = await in_proportion(
            len(prompt) * BYTES_PER_TOKEN, generate_request, fields, [prompt], grammar=grammar
        )
        return self._engine.submit(request, self._permit.lend_one(), self._request.adapter)

    async def _one(
        self, fields: dict[str, Any], prompt: str | list[int], grammar: GrammarSpec | None
    ) -> Delta:
        stream = await self._submit(fields, prompt, grammar)
        try:
            return await stream.result()
        finally:
            stream.cancel()

    def _find_stop(self, beam: Beam) -> str | None:
        return self._written(beam, None)[2]

    def _written(self, beam: Beam, logprobs: int | None) -> tuple[str, str, str | None]:
        """Text and log-probabilities of a beam, and the stop string that ends it."""
        return self._engine.write(
            [(one.token, one.token_logprob, list(one.likely[: logprobs or 0])) for one in beam.path()],
            {
                "stop": self._fields.get("stop") or [],
                "include_stop": bool(self._fields.get("include_stop_str_in_output")),
                "control_text": self._request.control_text,
                "completion": self._request.completion,
            },
        )

    def _choices(self, prompt: _Prompt, answers: list[Answer], first: int) -> list[ComposedChoice]:
        """The choices of one prompt."""
        shows_tokens = bool(self._fields.get("return_token_ids"))
        if self._request.plan.filled:
            empty = Answer(Beam(), 0.0, "stop", 0.0)
            answers = answers + [empty] * (self._request.plan.n - len(answers))
        choices = []
        for index, answer in enumerate(answers, first):
            complete = self._must_be_complete or answer.reason == "stop"
            text, logprobs, _ = self._written(answer.beam, self._request.logprobs)
            tokens = [] if not shows_tokens else answer.beam.tokens()
            if shows_tokens and answer.ended_by is not None:
                tokens.append(answer.ended_by)
            choices.append(
                ComposedChoice(
                    index=index,
                    text=text,
                    token_count=_count(answer),
                    finish_reason=answer.reason,
                    stop_reason=answer.stop_reason,
                    logprobs=None if self._request.logprobs is None else logprobs,
                    token_ids=tokens,
                    prompt_token_ids=prompt.tokens if shows_tokens else None,
                    constraint=self._receipts.of(_count(answer), complete=complete),
                )
            )
        return choices


@dataclass(slots=True)
class Receipts:
    """What held the answers of one search (docs/receipt.md), from the receipts of its parts.

    Attributes:
        without_search: the receipt of an answer that was made without one.
    """

    without_search: str | None = None
    _facts: dict[str, Any] | None = None
    _mask_ms: float = 0.0

    def add(self, receipt: str | None) -> None:
        """Takes note of a part."""
        if receipt is None:
            return
        part = from_json(receipt)
        self._mask_ms += part["mask_ms"]
        # It is of one token, and is not asked for with beams.
        part.pop("removed_mass", None)
        self._facts = self._facts or part

    def of(self, tokens: int, *, complete: bool) -> str | None:
        """The receipt of an answer of so many tokens; None without a constraint."""
        if self.without_search is not None or self._facts is None or tokens == 0:
            return self.without_search
        own = {
            "complete": complete,
            "closed_at_limit": False,
            "sampled_tokens": tokens,
            "forced_tokens": 0,
            "retracted_tokens": 0,
            "mask_ms": round(self._mask_ms, 3),
        }
        return to_json({**self._facts, **own}).decode()


async def _said(stream: Stream, beam: Beam, receipts: Receipts) -> Said | None:
    """What the core says behind a beam; None if it cannot go on."""
    try:
        delta = await stream.result()
    except (GrammarError, ConstraintError):
        if beam.length == 0:
            # It is the constraint itself that is wrong.
            raise
        return None
    choice = delta.choices[0]
    receipts.add(choice.constraint)
    top = from_json(choice.logprobs)["top"] if choice.logprobs is not None else []
    if choice.token_count == 0 or not top:
        # Nothing may follow, or nothing but the end.
        return Said(reason=choice.finish_reason)
    return Said(tuple((token, logprob) for token, logprob in top[0] if logprob > IMPOSSIBLE))


def _count(answer: Answer) -> int:
    """Tokens of an answer, the one that ended it included."""
    return answer.beam.length + (answer.ended_by is not None)
