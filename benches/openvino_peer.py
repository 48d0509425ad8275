"""OpenVINO GenAI's continuous batching, in process, without HTTP: what ``peers.py`` compares with.

Reads one JSON line per batch, ``[{"prompt": text, "max_tokens": n, "schema": object or null}, ...]``, and
writes one with an answer for each: ``start_s``, ``end_s``, ``texts_s`` (when its tokens came), ``text``,
``output_tokens``, ``finish_reason``. The first line that it writes, when the model is loaded, is ``"ready"``.
Runs in the environment of the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import openvino_genai

# What libraries print goes to stderr; answers go to the standard output that this process began with.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(value: Any) -> None:
    ANSWERS.write(json.dumps(value) + "\n")
    ANSWERS.flush()


def config(request: dict[str, Any]) -> openvino_genai.GenerationConfig:
    options = openvino_genai.GenerationConfig()
    options.max_new_tokens = request["max_tokens"]
    options.do_sample = False
    options.apply_chat_template = False
    if request["schema"] is None:
        options.ignore_eos = True
    else:
        structured = openvino_genai.StructuredOutputConfig(json_schema=json.dumps(request["schema"]))
        options.structured_output_config = structured
    return options


def answer(pipeline: Any, tokenizer: Any, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    start = time.perf_counter()
    answers: list[dict[str, Any]] = []
    handles = []
    for number, request in enumerate(requests):
        turn = [{"role": "user", "content": request["prompt"]}]
        prompt = tokenizer.encode(tokenizer.apply_chat_template(turn, add_generation_prompt=True))
        handles.append(pipeline.add_request(number, prompt.input_ids, config(request)))
        answers.append(
            {"start_s": start, "texts_s": [], "end_s": start, "tokens": [], "finish_reason": "length"}
        )
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter()
        for handle, result in zip(handles, answers, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    result["texts_s"] += [now] * len(output.generated_ids)
                    result["tokens"] += output.generated_ids
                    result["end_s"] = now
                    if output.finish_reason == openvino_genai.GenerationFinishReason.STOP:
                        result["finish_reason"] = "stop"
    for result in answers:
        tokens = result.pop("tokens")
        result["output_tokens"] = len(tokens)
        result["text"] = tokenizer.decode(tokens)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="tokens per slot")
    arguments = parser.parse_args()
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs = arguments.slots
    scheduler.max_num_batched_tokens = 512
    # Blocks of the CPU's cache are of 32 tokens.
    scheduler.num_kv_blocks = arguments.slots * (arguments.context // 32 + 1)
    scheduler.enable_prefix_caching = False
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        arguments.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": arguments.threads}
    )
    tokenizer = pipeline.get_tokenizer()
    say("ready")
    for line in sys.stdin:
        say(answer(pipeline, tokenizer, json.loads(line)))


if __name__ == "__main__":
    main()
