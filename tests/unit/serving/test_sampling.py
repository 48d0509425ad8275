"""How long an answer may be."""

from __future__ import annotations

from typing import Any

import pytest

from llgtrt.serving import ChatRequest, RequestError, TokenLimits
from llgtrt.serving.sampling import asked_tokens

MESSAGES = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("limits", "asked", "default", "expected"),
    [
        # What nobody asked for never makes a request too long.
        (TokenLimits(1), None, None, (None, True)),
        (TokenLimits(1), None, 16, (16, True)),
        (TokenLimits(1, default_max_tokens=100), None, 16, (100, True)),
        (TokenLimits(1), 50, 16, (50, False)),
        (TokenLimits(1, clamp_max_tokens=True), 50, 16, (50, True)),
        (TokenLimits(1), 0, 16, (0, False)),
        (TokenLimits(1), -1, 16, (None, False)),
    ],
)
def test_the_length_of_an_answer(
    limits: TokenLimits, asked: int | None, default: int | None, expected: tuple[int | None, bool]
) -> None:
    length = limits.max_tokens(asked, default)
    assert (length["max_tokens"], length["clamp_max_tokens"]) == expected


def test_the_newest_name_counts() -> None:
    def asked(**fields: Any) -> int | None:
        return asked_tokens(ChatRequest(messages=MESSAGES, **fields))

    assert asked() is None
    assert asked(n_predict=3) == 3
    assert asked(n_predict=3, max_tokens=4) == 4
    assert asked(n_predict=3, max_tokens=4, max_completion_tokens=5) == 5


def test_fewer_tokens_than_the_least_are_refused_under_their_name() -> None:
    with pytest.raises(RequestError, match="greater than n_predict"):
        asked_tokens(ChatRequest(messages=MESSAGES, n_predict=3, min_tokens=4))
    asked_tokens(ChatRequest(messages=MESSAGES, max_tokens=-1, min_tokens=4))
