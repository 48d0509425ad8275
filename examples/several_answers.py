"""What most of several answers say: python examples/several_answers.py [QUESTION]"""

from __future__ import annotations

import sys
from collections import Counter

from _client import connect


def main() -> None:
    client, model = connect()
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "How many legs has a spider?"}],
        n=8,
        temperature=0.8,
        seed=1,  # the answer with index i uses seed + i
        extra_body={"guided_regex": "[0-9]{1,2}"},
    )
    counts = Counter(choice.message.content for choice in answer.choices)
    for text, count in counts.most_common():
        print(f"{count} x {text}")


if __name__ == "__main__":
    main()
