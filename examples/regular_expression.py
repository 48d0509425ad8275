"""An answer of a form that a regular expression gives: python examples/regular_expression.py [QUESTION]"""

from __future__ import annotations

import re
import sys

from _client import connect

TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"


def main() -> None:
    client, model = connect()
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "When do people have lunch?"}],
        # What OpenAI's API has no field for goes here; `guided_regex` is vLLM's name for it.
        extra_body={"response_format": {"type": "regex", "regex": TIME}},
    )
    text = answer.choices[0].message.content or ""
    assert re.fullmatch(TIME, text)
    print(text)


if __name__ == "__main__":
    main()
