"""The search beside all answers that there are, over models of a few tokens."""

from __future__ import annotations

import asyncio
import itertools
import math
import random

import pytest

from llgtrt.serving.beam_search import Answer, Beam, BeamRules, NoAnswerError, Said, search

END = 0


class Model:
    """Tokens ``1..size`` and the end, with log-probabilities that depend on all tokens before."""

    def __init__(self, seed: int, size: int) -> None:
        self._seed = seed
        self._size = size
        self.asked: list[int] = []

    def likely(self, tokens: list[int]) -> list[tuple[int, float]]:
        chance = random.Random(repr((self._seed, tokens)))
        weights = [chance.random() + 0.01 for _ in range(self._size + 1)]
        logprobs = [math.log(weight / sum(weights)) for weight in weights]
        return sorted(enumerate(logprobs), key=lambda one: one[1], reverse=True)

    def ask(self, width: int):  # type: ignore[no-untyped-def]
        async def ask(beams: list[Beam]) -> list[Said | None]:
            self.asked.append(len(beams))
            return [Said(tuple(self.likely(beam.tokens())[: 2 * width])) for beam in beams]

        return ask

    def every_answer(self, rules: BeamRules) -> list[tuple[float, list[int], str]]:
        """All answers within the limit, best first, by looking at each."""
        answers = []
        for length in range(rules.max_tokens + 1):
            for tokens in itertools.product(range(1, self._size + 1), repeat=length):
                logprob = sum(dict(self.likely(list(tokens[:at])))[token] for at, token in enumerate(tokens))
                if length == rules.max_tokens:
                    answers.append((rules.score(logprob, length), list(tokens), "length"))
                elif length >= rules.min_tokens:
                    end = dict(self.likely(list(tokens)))[END]
                    answers.append((rules.score(logprob + end, length), list(tokens), "stop"))
        return sorted(answers, key=lambda one: one[0], reverse=True)


def rules(width: int, max_tokens: int = 3, **changes: object) -> BeamRules:
    fields: dict[str, object] = {
        "length_penalty": 1.0,
        "early_stopping": False,
        "min_tokens": 0,
        "end_tokens": {END: None},
        "constrained": False,
        **changes,
    }
    return BeamRules(width=width, max_tokens=max_tokens, **fields)  # type: ignore[arg-type]


def found(wanted: BeamRules, model: Model) -> list[Answer]:
    return asyncio.run(search(wanted, model.ask(wanted.width)))


@pytest.mark.parametrize("penalty", [0.0, 1.0, -0.5, 2.0])
@pytest.mark.parametrize("min_tokens", [0, 2])
def test_as_many_beams_as_there_are_beginnings_find_the_best_answers(penalty: float, min_tokens: int) -> None:
    for seed in range(20):
        # 3 tokens and 2 of them before the last: 9 beginnings, which 9 beams all follow.
        wanted = rules(9, 3, length_penalty=penalty, min_tokens=min_tokens)
        expected = Model(seed, 3).every_answer(wanted)[:9]
        answers = found(wanted, Model(seed, 3))
        assert [(answer.beam.tokens(), answer.reason) for answer in answers] == [
            (tokens, reason) for _, tokens, reason in expected
        ]
        assert [answer.score for answer in answers] == pytest.approx([score for score, _, _ in expected])


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    for seed in range(20):
        model = Model(seed, 4)
        tokens: list[int] = []
        while len(tokens) < 5:
            best = next(token for token, _ in model.likely(tokens) if token != END)
            tokens.append(best)
        wanted = rules(1, 5, length_penalty=0.0, min_tokens=5)
        (answer,) = found(wanted, model)
        assert (answer.beam.tokens(), answer.reason) == (tokens, "length")


def test_more_beams_than_one_find_what_one_misses() -> None:
    # The likelier first token leads to nothing likely.
    said = {
        (): ((1, math.log(0.6)), (2, math.log(0.4))),
        (1,): ((1, math.log(0.3)), (2, math.log(0.3)), (3, math.log(0.3))),
        (2,): ((1, math.log(0.9)), (2, math.log(0.1))),
    }

    async def ask(beams: list[Beam]) -> list[Said | None]:
        return [Said(said[tuple(beam.tokens())]) for beam in beams]

    def best(width: int) -> list[int]:
        return asyncio.run(search(rules(width, 2, end_tokens={}), ask))[0].beam.tokens()

    assert best(1) == [1, 1]
    assert best(2) == [2, 1]


def test_early_stopping_ends_with_as_many_answers_as_beams() -> None:
    model, patient = Model(3, 3), Model(3, 3)
    early = found(rules(2, 40, early_stopping=True, length_penalty=2.0), model)
    late = found(rules(2, 40, length_penalty=2.0), patient)
    assert len(early) == len(late) == 2
    assert len(model.asked) < len(patient.asked) == 40
    assert late[0].score >= early[0].score


def test_without_early_stopping_it_ends_when_nothing_better_can_come() -> None:
    model = Model(3, 3)
    found(rules(2, 40, length_penalty=0.0), model)
    assert len(model.asked) < 40


def test_end_tokens_are_named_and_not_part_of_the_answer() -> None:
    async def ask(beams: list[Beam]) -> list[Said | None]:
        return [Said(((7, -0.1), (1, -3.0))) for _ in beams]

    (answer,) = asyncio.run(search(rules(1, 5, end_tokens={7: "seven"}, early_stopping=True), ask))
    assert (answer.beam.tokens(), answer.stop_reason, answer.ended_by) == ([], "seven", 7)
    assert answer.logprob == pytest.approx(-0.1)


def test_stop_strings_end_a_beam() -> None:
    async def ask(beams: list[Beam]) -> list[Said | None]:
        return [Said(((5, -0.1), (6, -0.5))) for _ in beams]

    def find_stop(beam: Beam) -> str | None:
        return "six" if beam.token == 6 else None

    answers = asyncio.run(search(rules(2, 3), ask, find_stop))
    assert [(answer.beam.tokens(), answer.reason, answer.stop_reason) for answer in answers] == [
        ([5, 5, 5], "length", None),
        ([5, 5, 6], "stop", "six"),
    ]


def test_under_a_constraint_the_model_says_what_is_complete() -> None:
    async def ask(beams: list[Beam]) -> list[Said | None]:
        # Two tokens, the second of which is 2, are complete; behind a first 3 there is no way on.
        return [
            Said(((2, -0.5), (1, -0.4), (3, -0.1)))
            if beam.length == 0
            else None
            if beam.tokens() == [3]
            else Said(reason="stop")
            if beam.length == 2 and beam.token == 2
            else Said(((1, -0.1), (2, -2.0)))
            for beam in beams
        ]

    answers = asyncio.run(search(rules(4, 2, constrained=True), ask))
    assert [answer.beam.tokens() for answer in answers] == [[1, 2], [2, 2]]
    assert all(answer.reason == "stop" for answer in answers)


def test_where_no_beam_can_go_on_the_last_ones_are_told() -> None:
    async def ask(beams: list[Beam]) -> list[Said | None]:
        return [Said(((1, -0.1), (2, -0.2))) if beam.length < 2 else None for beam in beams]

    with pytest.raises(NoAnswerError) as caught:
        asyncio.run(search(rules(2, 9, constrained=True), ask))
    assert [beam.tokens() for beam in caught.value.beams] == [[1, 1], [1, 2]]
