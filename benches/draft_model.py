"""What a small model that guesses (`llamacpp.draft_model`) wins on plain answers of a larger one.

No pair of real models is at hand without a download. So the larger one is the demo model with zeros around
its weights: it says what the demo model says, and takes as long as any model of its shape, which has 1B
weights. Small models are the demo model, whose guesses all come true, and the demo model without some of its
layers, which says something else now and then. Without and with, two servers take turns in every round.
"""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from extraction import HEAD, guessing_side, measure
from load import print_table
from serve import TOPICS, model_options

HERE = Path(__file__).parent
TIMES_AS_WIDE = 3
SMALL: dict[str, list[int]] = {"whole": [], "without layer 18": [18], "without 10, 16, 22": [10, 16, 22]}


def body(number: int, tokens: int) -> dict[str, Any]:
    """Request ``number``."""
    question = f"Write a short text about {TOPICS[number % len(TOPICS)]}, number {number}."
    return {
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def write(arguments: Any, name: str, *options: str) -> Path:
    """A model with other layers than the demo model's, unless it is there."""
    path: Path = arguments.folder / f"demo-{name}.gguf"
    if not path.exists():
        python = arguments.folder / "venv/bin/python"
        files = ["--source", arguments.model, "--output", path]
        script = [python, HERE / "reshaped_model.py", *files, *options]
        subprocess.run(script, check=True)
    return path


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="with `venv`, the peers' environment")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4])
    arguments = parser.parse_args()
    bodies = [body(number, arguments.tokens) for number in range(arguments.requests)]
    drafts = {
        name: write(arguments, name.replace(" ", "-").replace(",", ""), "--without", *map(str, layers))
        for name, layers in SMALL.items()
    }
    arguments.model = write(arguments, "wide", "--times", str(TIMES_AS_WIDE))
    rows = []
    for name, draft in drafts.items():
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sides = []
            for side, options in (("guessing", {"draft_model": str(draft)}), ("plain", {})):
                sides.append(guessing_side(arguments, folder, side, **options))
                stack.callback(sides[-1].stop)
            rows += [[name, *measure(sides, streams, bodies)] for streams in arguments.streams]
    print_table(["small model", *HEAD], rows)


if __name__ == "__main__":
    main()
