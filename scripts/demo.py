"""A real model answers under a JSON schema: start the server, stream one answer, check it, stop the server.

Run by `make demo`. Everything it does, a client of your own could do: see the README.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
from openai import OpenAI

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 24},
        "species": {"enum": ["cat", "dog", "parrot", "tortoise"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 30},
        "likes": {
            "type": "array",
            "items": {"type": "string", "minLength": 3, "maxLength": 24},
            "minItems": 2,
            "maxItems": 4,
        },
        "vaccinated": {"type": "boolean"},
        "owner": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 3, "maxLength": 24},
                "phone": {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"},
            },
            "required": ["name", "phone"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "species", "age", "likes", "vaccinated", "owner"],
    "additionalProperties": False,
}
PROMPT = "Invent a pet and its owner."
START_TIMEOUT_S = 60

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def step(text: str) -> None:
    print(paint(f"==> {text}", "1;36"), flush=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_ready(server: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server ended with code {server.returncode}; its output is above")
        try:
            with urllib.request.urlopen(f"{url}/v1/health/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    sys.exit(f"the server was not ready within {START_TIMEOUT_S} s")


def read_metrics(url: str) -> dict[str, float]:
    """Samples by name, summed over their labels."""
    samples: dict[str, float] = {}
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as response:
        for line in response.read().decode().splitlines():
            if match := re.fullmatch(r"([a-z_]+)(?:\{.*\})? (\S+)", line):
                samples[match[1]] = samples.get(match[1], 0.0) + float(match[2])
    return samples


def ask(url: str) -> None:
    """Streams one answer, validates it, prints the figures."""
    step(f"POST {url}/v1/chat/completions   response_format: json_schema, stream: true")
    print(f"    {PROMPT}\n")
    text, usage, first_s = "", None, 0.0
    with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        start = time.perf_counter()
        for chunk in client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": PROMPT}],
            response_format={"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}},
            temperature=0.3,
            seed=2,
            max_tokens=400,
            stream=True,
            stream_options={"include_usage": True},
        ):
            usage = chunk.usage or usage
            piece = chunk.choices[0].delta.content if chunk.choices else None
            if piece:
                first_s = first_s or time.perf_counter() - start
                text += piece
                print(paint(piece, "32"), end="", flush=True)
        total_s = time.perf_counter() - start
    print("\n")

    jsonschema.validate(json.loads(text), SCHEMA)
    step("The answer satisfies the schema (checked with jsonschema)")
    samples = read_metrics(url)
    tokens = usage.completion_tokens if usage else 0
    sampled = samples.get("llgtrt_sampled_tokens_total", 0.0)
    forced = samples.get("llgtrt_forced_tokens_total", 0.0)
    masks = samples.get("llgtrt_mask_compute_seconds_count", 0.0)
    mask_us = samples.get("llgtrt_mask_compute_seconds_sum", 0.0) / max(masks, 1) * 1e6
    print(f"    {tokens} tokens in {total_s:.2f} s: {paint(f'{tokens / total_s:.0f} tokens/s', '1')}")
    print(f"    time to first token: {paint(f'{first_s * 1e3:.0f} ms', '1')}")
    print(f"    {sampled:.0f} tokens sampled by the model, {forced:.0f} forced by the schema")
    print(f"    mask time: {paint(f'{mask_us:.0f} us', '1')} a mask, {masks:.0f} masks")


def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    llgtrt = Path(sys.executable).with_name("llgtrt")
    step(f"llgtrt serve --port {port}   (the demo model, SmolLM2 135M, on the CPU)")
    server = subprocess.Popen(
        [llgtrt, "serve", "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "smollm2", "-q"]
    )
    try:
        wait_ready(server, url)
        ask(url)
        step("SIGTERM")
        server.send_signal(signal.SIGTERM)
        code = server.wait(30)
        print(f"    the server stopped with code {code}")
        if code != 0:
            sys.exit(1)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
