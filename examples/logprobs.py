"""How likely a text is, without generating anything: python examples/logprobs.py [TEXT]"""

from __future__ import annotations

import math
import sys

from _client import connect


def main() -> None:
    client, model = connect()
    text = " ".join(sys.argv[1:]) or "The capital of France is Paris."
    answer = client.completions.create(model=model, prompt=text, max_tokens=0, echo=True, logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    # Nothing stands before the first token, so nobody knows how likely it is.
    known = [value for value in logprobs.token_logprobs or () if value is not None]
    for token, value in zip(logprobs.tokens or (), logprobs.token_logprobs or (), strict=True):
        print(f"{token!r}: {'' if value is None else f'{math.exp(value):.2%}'}")
    print(f"perplexity {math.exp(-sum(known) / len(known)):.1f}")


if __name__ == "__main__":
    main()
