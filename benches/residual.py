"""How many answers end with status 422 where no grammar holds the whole schema and the rest is checked.

Random answers of the model (temperature 0.8, with seeds) under schemas that ordinary code writes, or under
those of a file (JSON lines with `schema`) whose grammar leaves something open. Every answer that ends is
judged by jsonschema.
"""

from __future__ import annotations

import collections
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from load import print_table
from serve import llgtrt_side, model_options

from llgtrt.schema import check

WORD = {"type": "string", "minLength": 2, "maxLength": 12}
COLOURS = ["red", "green", "blue", "black", "white", "yellow", "brown", "pink"]

SCHEMAS: dict[str, Any] = {
    "set of strings": {"type": "array", "items": WORD, "uniqueItems": True, "minItems": 3, "maxItems": 12},
    "set of integers": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 5},
    "set of eight literals": {
        "type": "array",
        "items": {"enum": COLOURS},
        "uniqueItems": True,
        "minItems": 4,
    },
    "set of objects": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": WORD, "age": {"enum": [1, 2]}},
            "required": ["name"],
        },
        "uniqueItems": True,
        "minItems": 2,
        "maxItems": 6,
    },
    "map of three or more": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "minProperties": 3,
    },
    "five of many optional keys": {
        "type": "object",
        "properties": {f"option_{number}": {"type": "boolean"} for number in range(80)},
        "minProperties": 5,
    },
    "no multiple of seven": {
        "type": "object",
        "properties": {"count": {"type": "integer", "minimum": 0, "not": {"multipleOf": 7}}},
        "required": ["count"],
    },
    "the same word twice": {"type": "string", "pattern": r"^([a-z]{2,6}) \1$"},
    "a list that holds a zero": {
        "type": "array",
        "items": {"type": "integer"},
        "contains": {"const": 0},
        "minContains": 2,
        "maxItems": 90,
    },
}
"""By what a programmer would call them."""


KINDS = ("valid", "invalid", "cut", "422")
"""How an answer ends that was not refused."""


def left_open(file: Path, most: int) -> dict[str, Any]:
    """Schemas of a file whose grammar leaves something open."""
    found: dict[str, Any] = {}
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            schema = json.loads(line)["schema"]
            report = check(schema)
            if report.ok and report.residual and len(found) < most:
                found[f"{file.name}:{number}"] = schema
    return found


def outcome(port: int, schema: Any, seed: int, max_tokens: int) -> str:
    body = {
        "messages": [{"role": "user", "content": f"Write example number {seed} as JSON."}],
        "guided_json": schema,
        "temperature": 0.8,
        "seed": seed,
        "max_tokens": max_tokens,
    }
    response = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=300)
    if response.status_code != 200:
        return str(response.status_code)
    choice = response.json()["choices"][0]
    if choice["finish_reason"] == "length":
        return "cut"
    validator = jsonschema.validators.validator_for(schema)(schema)
    return "valid" if validator.is_valid(json.loads(choice["message"]["content"])) else "invalid"


def others(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items() if kind not in KINDS) or "-"


def main() -> None:
    parser = model_options((__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--schemas", type=Path, help="a file of JSON lines with `schema`, instead of those here"
    )
    parser.add_argument("--most", type=int, default=60, help="schemas of the file")
    parser.add_argument("--answers", type=int, default=20, help="of each schema")
    parser.add_argument("--max-tokens", type=int, default=300)
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    schemas = left_open(arguments.schemas, arguments.most) if arguments.schemas else SCHEMAS
    rows, all_counts = [], collections.Counter[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        side = llgtrt_side(arguments.model, arguments.clients, arguments.threads, folder)
        stack.callback(side.stop)
        pool = stack.enter_context(ThreadPoolExecutor(arguments.clients))
        for name, schema in schemas.items():
            seeds = range(arguments.answers)
            ask = pool.map(
                lambda seed, schema=schema: outcome(side.port, schema, seed, arguments.max_tokens), seeds
            )
            counts = collections.Counter(ask)
            all_counts += counts
            rows.append([name, *(str(counts[kind]) for kind in KINDS), others(counts)])
    rows.append(["all", *(str(all_counts[kind]) for kind in KINDS), others(all_counts)])
    print_table(["schema", *KINDS, "others"], rows)


if __name__ == "__main__":
    main()
