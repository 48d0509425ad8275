"""Prints a chat request whose answer satisfies a JSON Schema, for an engine that constrains with llguidance.

The schema is rewritten first, so that also ``not``, ``oneOf``, ``if`` and the like hold::

    python examples/normalize_for_llguidance.py schema.json --engine vllm |
        curl -s -H 'Content-Type: application/json' -d @- http://localhost:8000/v1/chat/completions

Start vLLM with ``--structured-outputs-config.backend guidance``, SGLang with ``--grammar-backend llguidance``
and llama.cpp (also for llama-cpp-python) built with ``-DLLAMA_LLGUIDANCE=ON``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from llgtrt.schema import Normalized, SchemaError, normalize


def constraint(engine: str, normalized: Normalized) -> dict[str, Any]:
    """The fields of a request that carry the grammar."""
    if engine == "vllm":
        return {"structured_outputs": {"grammar": normalized.lark()}}
    if engine == "sglang":
        return {"ebnf": normalized.lark()}
    # llama.cpp knows by the first line which engine the grammar is for.
    return {"grammar": f"%llguidance {{}}\n{normalized.lark()}"}


def main() -> None:
    """Reads the schema, prints the request, and tells on standard error what was done."""
    parser = argparse.ArgumentParser(description="Print a request for an engine that uses llguidance.")
    parser.add_argument("schema", type=Path, help="a JSON file with the schema")
    parser.add_argument("--engine", choices=["vllm", "sglang", "llama.cpp"], default="vllm")
    parser.add_argument("--model", default="default")
    parser.add_argument("--prompt", default="Answer in JSON.")
    options = parser.parse_args()
    try:
        normalized = normalize(json.loads(options.schema.read_text()))
    except SchemaError as error:
        for problem in error.problems:
            print(f"{problem.path or 'the schema'}: {problem.message}; {problem.hint or ''}", file=sys.stderr)
        sys.exit(1)
    print(f"rules: {', '.join(rule.name for rule in normalized.rules) or 'none'}", file=sys.stderr)
    for left in normalized.residual:
        print(f"check the answer for `{left.keyword}` at {left.path or 'the root'}", file=sys.stderr)
    request = {
        "model": options.model,
        "messages": [{"role": "user", "content": options.prompt}],
        **constraint(options.engine, normalized),
    }
    print(json.dumps(request))


if __name__ == "__main__":
    main()
