"""An answer while it is written: python examples/stream.py [QUESTION]"""

from __future__ import annotations

import sys

from _client import connect


def main() -> None:
    client, model = connect()
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": " ".join(sys.argv[1:]) or "Tell me a story."}],
        max_tokens=200,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage is not None:
            # The last chunk has no choices.
            print(f"\n[{chunk.usage.completion_tokens} tokens]")


if __name__ == "__main__":
    main()
