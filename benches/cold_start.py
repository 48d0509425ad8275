"""Cold start: seconds from the command to a server that is ready, and to its first answer of one token.

The model's file is in the page cache, and each start is a new process. llama.cpp's own server takes turns
with this one.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from load import print_table
from serve import llama_side, llgtrt_side, model_options

REQUEST = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0}


def first_answer(port: int) -> None:
    """Asks for one token.

    Raises:
        OSError: there is no answer.
    """
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(REQUEST).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


def start(name: str, arguments: Any, folder: Path) -> tuple[float, float]:
    """Seconds until a server is ready, and until it has answered."""
    begin = time.monotonic()
    if name == "llgtrt":
        side = llgtrt_side(arguments.model, arguments.slots, arguments.threads, folder)
    else:
        side = llama_side(arguments.model, arguments.slots, arguments.threads)
    try:
        ready = time.monotonic() - begin
        first_answer(side.port)
        return ready, time.monotonic() - begin
    finally:
        side.stop()


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--alone", action="store_true", help="without llama.cpp's server")
    arguments = parser.parse_args()
    names = ["llgtrt"] if arguments.alone else ["llgtrt", "llama-server"]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds + 1):
            for name in names if number % 2 else names[::-1]:
                taken = start(name, arguments, Path(folder))
                if number > 0:  # the first ones read files that nobody has read
                    times[name].append(taken)
            print(f"round {number} of {arguments.rounds}", file=sys.stderr)
    rows = []
    for name in names:
        ready = [one for one, _ in times[name]]
        answered = [other for _, other in times[name]]
        rows.append(
            [
                name,
                f"{statistics.median(ready):.2f}",
                f"{min(ready):.2f}-{max(ready):.2f}",
                f"{statistics.median(answered):.2f}",
                f"{min(answered):.2f}-{max(answered):.2f}",
            ]
        )
    print_table(["server", "ready s", "min-max", "answered s", "min-max"], rows)


if __name__ == "__main__":
    main()
