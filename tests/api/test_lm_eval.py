"""Log-likelihoods as lm-eval asks for them: what it sends, and that it reads the right numbers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.api import COMPLETIONS, ok
from support.lm_eval import parse, payload

CONTEXTS = ["The sky is", "Question: 2 + 2 =\nAnswer:", "x"]
CONTINUATIONS = [" blue", " 4, of course", "y"]


def tokens_of(http: httpx.Client, text: str, special: bool = False) -> list[int]:
    tokens: list[int] = ok(http.post("/tokenize", json={"prompt": text, "add_special_tokens": special}))[
        "tokens"
    ]
    return tokens


def by_hand(http: httpx.Client, tokens: list[int], length: int) -> tuple[float, bool]:
    """The same from ``prompt_logprobs``, token by token."""
    body = ok(
        http.post(COMPLETIONS, json={"prompt": tokens, "max_tokens": 0, "echo": True, "prompt_logprobs": 1})
    )
    entries = body["choices"][0]["prompt_logprobs"][length:]
    own = [entry[str(token)] for token, entry in zip(tokens[length:], entries, strict=True)]
    return sum(one["logprob"] for one in own), all(one["rank"] == 1 for one in own)


@pytest.mark.parametrize("form", ["tokens", "texts"])
def test_the_sums_are_those_of_the_continuations(http: httpx.Client, form: str) -> None:
    # A text gets the token that begins one; token ids are taken as they are.
    contexts = [tokens_of(http, text, special=form == "texts") for text in CONTEXTS]
    wholes = [context + tokens_of(http, text) for context, text in zip(contexts, CONTINUATIONS, strict=True)]
    lengths = [len(context) for context in contexts]
    prompts: Any = (
        wholes if form == "tokens" else [a + b for a, b in zip(CONTEXTS, CONTINUATIONS, strict=True)]
    )
    body = ok(http.post(COMPLETIONS, json=payload("sim-model", prompts)))
    for choice, tokens in zip(body["choices"], wholes, strict=True):
        for column in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            # The prompt, and the one token that has to be generated.
            assert len(choice["logprobs"][column]) == len(tokens) + 1
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert choice["logprobs"]["top_logprobs"][0] is None
    read = parse(body, lengths)
    for (total, greedy), tokens, length in zip(read, wholes, lengths, strict=True):
        expected, is_greedy = by_hand(http, tokens, length)
        assert total == pytest.approx(expected, abs=1e-5)
        assert greedy == is_greedy
    assert body["usage"]["prompt_tokens"] == sum(map(len, wholes))


def test_one_token_of_context_is_enough(http: httpx.Client) -> None:
    tokens = tokens_of(http, "ab")
    body = ok(http.post(COMPLETIONS, json=payload("sim-model", [tokens])))
    [(total, _)] = parse(body, [1])
    assert total == body["choices"][0]["logprobs"]["token_logprobs"][1] < 0
