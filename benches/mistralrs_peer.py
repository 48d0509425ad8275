"""mistral.rs, in process, without HTTP: the same protocol as ``openvino_peer.py``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(value: Any) -> None:
    ANSWERS.write(json.dumps(value) + "\n")
    ANSWERS.flush()


def answer(runner: Any, library: Any, request: dict[str, Any]) -> dict[str, Any]:
    constraint: dict[str, Any] = {"ignore_eos": True}
    if request["schema"] is not None:
        constraint = {"grammar": json.dumps(request["schema"]), "grammar_type": "json_schema"}
    start = time.perf_counter()
    times: list[float] = []
    text, finish = "", "length"
    stream = runner.send_chat_completion_request(
        library.ChatCompletionRequest(
            messages=[{"role": "user", "content": request["prompt"]}],
            model="default",
            max_tokens=request["max_tokens"],
            temperature=0.0,
            stream=True,
            **constraint,
        )
    )
    tokens = 0
    for chunk in stream:
        choice = chunk.choices[0]
        if choice.delta.content:
            text += choice.delta.content
            times.append(time.perf_counter())
        finish = choice.finish_reason or finish
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    return {
        "start_s": start,
        "texts_s": times,
        "end_s": time.perf_counter(),
        "text": text,
        "finish_reason": finish,
        "output_tokens": tokens or len(times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="tokens per slot; it takes what it needs")
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    # Reads the variable when it is loaded.
    import mistralrs

    which = mistralrs.Which.GGUF(str(arguments.model.parent), arguments.model.name)
    runner = mistralrs.Runner(which=which, max_seqs=arguments.slots, prefix_cache_n=0)
    say("ready")
    with ThreadPoolExecutor(arguments.slots) as pool:
        for line in sys.stdin:
            say(list(pool.map(lambda request: answer(runner, mistralrs, request), json.loads(line))))


if __name__ == "__main__":
    main()
