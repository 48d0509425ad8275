"""One of some texts, and how sure the model is of each token of it: python examples/choice.py [TEXT]"""

from __future__ import annotations

import math
import sys

from _client import connect

MOODS = ["positive", "neutral", "negative"]


def main() -> None:
    client, model = connect()
    answer = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "system", "content": f"What is the mood of the text: {', '.join(MOODS)}?"},
            {"role": "user", "content": " ".join(sys.argv[1:]) or "What a lovely day!"},
        ],
        logprobs=True,
        top_logprobs=3,
        extra_body={"guided_choice": MOODS},
    )
    choice = answer.choices[0]
    assert choice.message.content in MOODS
    print(choice.message.content)
    assert choice.logprobs is not None
    for token in choice.logprobs.content or ():
        print(f"  {token.token!r}: {math.exp(token.logprob):.1%}")


if __name__ == "__main__":
    main()
