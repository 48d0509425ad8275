"""What lm-eval's ``local-completions`` sends for log-likelihoods, and how it reads the answer.

Taken from ``LocalCompletionsAPI`` in ``lm_eval.models.openai_completions`` (``_create_payload`` without
``generate``, and ``parse_logprobs``), whose dependencies are too large for CI. The client itself is asked in
``tests/clients``.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any


def payload(model: str, prompts: list[list[int]] | list[str] | str, seed: int = 1234) -> dict[str, Any]:
    """The body of a request for log-likelihoods."""
    return {
        "model": model,
        "prompt": prompts,
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": seed,
        "echo": True,
    }


def parse(body: dict[str, Any], context_lengths: list[int]) -> list[tuple[float, bool]]:
    """The sum of the continuation's log-probabilities, and whether it is the greedy one, per prompt."""
    results = []
    choices = sorted(body["choices"], key=itemgetter("index"))
    for choice, length in zip(choices, context_lengths, strict=True):
        assert length > 0, "Context length must be greater than 0"
        logprobs = choice["logprobs"]["token_logprobs"][length:-1]
        tops = choice["logprobs"]["top_logprobs"][length:-1]
        greedy = all(own == max(top.values()) for own, top in zip(logprobs, tops, strict=True))
        results.append((sum(logprobs), greedy))
    return results
