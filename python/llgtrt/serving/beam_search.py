"""Beam search over any model that says which tokens are likely next: the algorithm, without an engine.

As in vLLM: in each step every beam is asked for its ``2 * width`` likeliest next tokens, and of all beams
that this makes the ``width`` likeliest go on. A beam that takes an end token is an answer. The score of an
answer is its log-probability divided by ``length ** length_penalty``, where the length counts its tokens
without the one that ended it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

StopReason: TypeAlias = "str | int | None"


@dataclass(frozen=True, slots=True)
class BeamRules:
    """What is searched for.

    Attributes:
        width: beams that go on, and most answers.
        max_tokens: most tokens of an answer.
        length_penalty: above 0 longer answers score better, below 0 shorter ones do.
        early_stopping: the search ends with ``width`` answers; else when no beam can become
            better than these.
        min_tokens: least tokens of an answer.
        end_tokens: tokens that end an answer, and what is reported as its reason.
        constrained: the model says when an answer is complete; one that is not does not count.
    """

    width: int
    max_tokens: int
    length_penalty: float
    early_stopping: bool
    min_tokens: int
    end_tokens: dict[int, StopReason]
    constrained: bool

    def score(self, logprob: float, length: int) -> float:
        """The score of an answer."""
        return logprob / math.pow(max(length, 1), self.length_penalty)

    def best_possible(self, beam: Beam) -> float:
        """No answer that a beam leads to scores better: its log-probability does not grow any more."""
        length = self.max_tokens if self.length_penalty > 0 else beam.length
        return self.score(beam.logprob, length)


@dataclass(frozen=True, slots=True)
class Beam:
    """The beginning of an answer: another one, and a token.

    Attributes:
        logprob: of all its tokens.
        token_logprob: of the last one.
        likely: the likeliest tokens in its place, with their log-probabilities.
    """

    before: Beam | None = None
    token: int = -1
    length: int = 0
    logprob: float = 0.0
    token_logprob: float = 0.0
    likely: tuple[tuple[int, float], ...] = ()

    def then(self, token: int, logprob: float, said: Said) -> Beam:
        """This beam with one more token."""
        return Beam(self, token, self.length + 1, self.logprob + logprob, logprob, said.likely)

    def path(self) -> list[Beam]:
        """The beams that it went through, itself the last: one per token."""
        found: list[Beam] = []
        beam = self
        while beam.before is not None:
            found.append(beam)
            beam = beam.before
        found.reverse()
        return found

    def tokens(self) -> list[int]:
        """Its tokens."""
        return [one.token for one in self.path()]


@dataclass(frozen=True, slots=True)
class Answer:
    """A beam that has ended.

    Attributes:
        reason: ``stop`` or ``length``.
        ended_by: the end token, which is not one of the beam's; None where there was none.
        logprob: with that of the end token.
    """

    beam: Beam
    score: float
    reason: str
    logprob: float
    stop_reason: StopReason = None
    ended_by: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What the model says behind a beam.

    Attributes:
        likely: the likeliest next tokens with their log-probabilities, best first.
        reason: the beam is a complete answer as it is, ``stop`` or ``length``; nothing may follow.
    """

    likely: tuple[tuple[int, float], ...] = ()
    reason: str | None = None


Ask: TypeAlias = Callable[[list[Beam]], Awaitable["list[Said | None]"]]
"""Asks the model behind each beam; None where it cannot go on."""

FindStop: TypeAlias = Callable[[Beam], "str | None"]
"""The stop string that a beam's text ends with."""


class NoAnswerError(Exception):
    """No beam can go on, and none is an answer.

    Attributes:
        beams: the last that could go on, best first.
    """

    def __init__(self, beams: list[Beam]) -> None:
        super().__init__("no beam leads to an answer")
        self.beams = beams


async def search(rules: BeamRules, ask: Ask, find_stop: FindStop | None = None) -> list[Answer]:
    """The best answers, best first; at most ``rules.width``.

    Raises:
        NoAnswerError: there is none.
    """
    live, answers = [Beam()], list[Answer]()
    while live and not _is_over(rules, live, answers):
        said = await ask(live)
        grown = list[Beam]()
        for beam, one in zip(live, said, strict=True):
            if one is None:
                continue
            if one.reason is not None:
                answers.append(_answer(rules, beam, one.reason))
            elif beam.length < rules.max_tokens:
                answers += _ended(rules, beam, one)
                grown += _grown(rules, beam, one)
        # The order of equals is that of the beams that they come from.
        grown = sorted(grown, key=lambda beam: beam.logprob, reverse=True)[: rules.width]
        if not grown and not answers:
            raise NoAnswerError(live)
        live = []
        for beam in grown:
            found = find_stop(beam) if find_stop is not None and beam.length >= rules.min_tokens else None
            if found is not None:
                answers.append(_answer(rules, beam, "stop", stop_reason=found))
            elif beam.length == rules.max_tokens and not rules.constrained:
                answers.append(_answer(rules, beam, "length"))
            else:
                live.append(beam)
        answers = sorted(answers, key=lambda answer: answer.score, reverse=True)[: rules.width]
    return answers


def _is_over(rules: BeamRules, live: Iterable[Beam], answers: list[Answer]) -> bool:
    if len(answers) < rules.width:
        return False
    worst = min(answer.score for answer in answers)
    return rules.early_stopping or all(rules.best_possible(beam) <= worst for beam in live)


def _ended(rules: BeamRules, beam: Beam, said: Said) -> list[Answer]:
    """The answers that an end token makes of a beam."""
    if beam.length < rules.min_tokens:
        return []
    return [
        _answer(rules, beam, "stop", logprob, rules.end_tokens[token], token)
        for token, logprob in said.likely
        if token in rules.end_tokens
    ]


def _grown(rules: BeamRules, beam: Beam, said: Said) -> list[Beam]:
    return [
        beam.then(token, logprob, said) for token, logprob in said.likely if token not in rules.end_tokens
    ]


def _answer(
    rules: BeamRules,
    beam: Beam,
    reason: str,
    end_logprob: float = 0.0,
    stop_reason: StopReason = None,
    ended_by: int | None = None,
) -> Answer:
    logprob = beam.logprob + end_logprob
    return Answer(beam, rules.score(logprob, beam.length), reason, logprob, stop_reason, ended_by)
