"""Think first, then answer in a fixed form, with any model: python examples/thinking.py [QUESTION]"""

from __future__ import annotations

import sys

from _client import connect


def main() -> None:
    client, model = connect()
    question = " ".join(sys.argv[1:]) or "Ball and bat cost 1.10, the bat costs 1 more. How much is the ball?"
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=400,
        extra_body={
            "thinking": {"type": "enabled", "budget_tokens": 64},
            "guided_regex": r"[0-9]\.[0-9]{2}",
        },
    )
    message = answer.choices[0].message
    print(f"thoughts: {getattr(message, 'reasoning_content', '')!r}")
    print(f"answer: {message.content}")


if __name__ == "__main__":
    main()
