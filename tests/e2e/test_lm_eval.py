"""Log-likelihoods of the real model as lm-eval asks for them."""

from __future__ import annotations

from typing import Any

import httpx

from support.lm_eval import parse, payload
from support.server import ServerProcess

CONTEXT = "The capital of France is"
CONTINUATIONS = [" Paris", " Berlin", " a banana"]


def test_what_is_true_is_likelier(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.base_url, timeout=60) as http:

        def tokens_of(text: str) -> list[int]:
            tokens: list[int] = http.post("/tokenize", json={"prompt": text}).json()["tokens"]
            return tokens

        context = tokens_of(CONTEXT)
        wholes = [tokens_of(CONTEXT + text) for text in CONTINUATIONS]
        assert all(whole[: len(context)] == context for whole in wholes)

        def ask(prompts: list[list[int]], **fields: Any) -> Any:
            response = http.post("/v1/completions", json={**payload("smollm2", prompts), **fields})
            assert response.status_code == 200, response.text
            return response.json()

        lengths = [len(context)] * 3
        together = parse(ask(wholes), lengths)
        alone = [parse(ask([whole]), [len(context)])[0] for whole in wholes]
        for (total, _), (expected, _) in zip(together, alone, strict=True):
            # Kernels round otherwise in passes of another width.
            assert abs(total - expected) < 0.1
        paris, berlin, banana = (total for total, _ in together)
        assert paris > berlin > banana

        # The token that the model would write itself is the greedy continuation.
        written = ask([context])["choices"][0]["logprobs"]["tokens"][-1]
        likeliest = tokens_of(CONTEXT + written)
        [(_, greedy)] = parse(ask([likeliest]), [len(context)])
        [(_, not_greedy)] = parse(ask([wholes[2]]), [len(context)])
        assert (greedy, not_greedy) == (True, False)

        # An answer that ends at once has its entry too, or the continuation would lose its last token.
        end = http.post("/tokenize", json={"prompt": "<|im_end|>"}).json()["tokens"]
        assert len(end) == 1
        ended = ask([wholes[0]], logit_bias={str(end[0]): 100})["choices"][0]
        assert ended["finish_reason"] == "stop"
        assert len(ended["logprobs"]["token_logprobs"]) == len(wholes[0]) + 1
        assert abs(parse({"choices": [ended]}, [len(context)])[0][0] - paris) < 0.1
