"""A question and its answer: python examples/chat.py [QUESTION]"""

from __future__ import annotations

import sys

from _client import connect


def main() -> None:
    client, model = connect()
    answer = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": " ".join(sys.argv[1:]) or "Why is the sky blue?"},
        ],
        max_tokens=100,
    )
    print(answer.choices[0].message.content)
    usage = answer.usage
    assert usage is not None
    print(f"[{usage.prompt_tokens} tokens asked, {usage.completion_tokens} answered]")


if __name__ == "__main__":
    main()
