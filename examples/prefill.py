"""An answer whose beginning is given: python examples/prefill.py [BEGINNING]"""

from __future__ import annotations

import sys

from _client import connect


def main() -> None:
    client, model = connect()
    beginning = " ".join(sys.argv[1:]) or "The three primary colours are red,"
    answer = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "user", "content": "Which are the primary colours?"},
            {"role": "assistant", "content": beginning},
        ],
        max_tokens=20,
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )
    print(f"{beginning}{answer.choices[0].message.content}")


if __name__ == "__main__":
    main()
