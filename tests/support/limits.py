"""Pairs of a schema and a limit of tokens, from the shortest answer up: answers must be whole and valid."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for

from support.api import CHAT
from support.server import ServerProcess

ROOT = Path(__file__).parents[2]
FULL = os.environ.get("LLGTRT_LIMITS") == "full"
"""All pairs (``make limits``), or a part of them."""

STEPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""Tokens beyond the shortest answer: what is just enough, what nearly is, and what leaves room."""
LEAST_VALID = 0.999
MOST_REFUSED = 0.02
"""Of the schemas: those that cannot be enforced."""
WORKERS = 8
TIMEOUT_S = 110

_SHORTEST = re.compile(r"needs at least (\d+) tokens")
_PROMPT = "Answer with an example that is as long as possible, as JSON."


@cache
def schemas() -> dict[str, Any]:
    """Schemas of generators (pydantic, zod and others), of the end-to-end tests and of the benches.

    Without those that the judge reads otherwise: patterns that Python has no words for, lists in old drafts,
    OpenAPI's ``nullable``."""
    found: dict[str, Any] = {}
    for file, names in (
        ("rust/llgtrt-grammar/tests/data/generated.jsonl", ("from", "name")),
        ("tests/e2e/schemas.jsonl", ("name",)),
        ("benches/schemas.jsonl", ("id",)),
    ):
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            name = " ".join(row[name] for name in names)
            if _can_be_judged(row["schema"]):
                found[f"{Path(file).name} {name}"] = row["schema"]
    return found


def _can_be_judged(schema: Any) -> bool:
    kind: Any = validator_for(schema)
    if '"nullable"' in json.dumps(schema):
        return False
    try:
        kind.check_schema(schema, format_checker=kind.FORMAT_CHECKER)
    except SchemaError:
        return False
    return True


@dataclass
class Tally:
    """What became of the pairs.

    Attributes:
        pairs: answers that were asked for within a limit that has room for one.
        refused: schemas that cannot be enforced.
        finish: how often each finish reason came.
        broken: answers that are no JSON, or errors.
        invalid: answers that are JSON, and do not satisfy their schema.
        beyond: answers with more tokens than allowed.
    """

    pairs: int = 0
    refused: list[str] = field(default_factory=list)
    finish: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {reason}" for reason, count in sorted(self.finish.items()))
        return (
            f"{self.pairs} pairs: {self.pairs - len(self.broken)} parse, {len(self.invalid)} of them "
            f"invalid; ends: {ends}; schemas refused: {len(self.refused)}"
        )

    def check(self) -> None:
        """Fails if the promise is broken."""
        assert not self.broken, "\n".join(self.broken[:10])
        assert not self.beyond, "\n".join(self.beyond[:10])
        assert len(self.invalid) <= (1 - LEAST_VALID) * self.pairs, "\n".join(self.invalid[:10])
        assert len(self.refused) <= MOST_REFUSED * len(schemas()), self.refused
        assert self.finish["length"] > self.pairs / 10, "hardly any answer reached its limit"


class Client:
    """One connection to a server."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, schema: Any, limit: int, seed: int) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer under a schema."""
        body = {
            "messages": [{"role": "user", "content": _PROMPT}],
            "guided_json": schema,
            "max_tokens": limit,
            "temperature": 1.0,
            "seed": seed,
        }
        self._connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


def run(server: ServerProcess, every: int = 1) -> Tally:
    """Asks for every pair, or for every so many-th."""
    tally = Tally()
    names = list(schemas())
    with ThreadPoolExecutor(WORKERS) as pool:
        for part in pool.map(lambda start: _volley(server, names[start::WORKERS], every), range(WORKERS)):
            tally.pairs += part.pairs
            tally.finish += part.finish
            for name in ("refused", "broken", "invalid", "beyond"):
                getattr(tally, name).extend(getattr(part, name))
    return tally


def _volley(server: ServerProcess, names: list[str], every: int) -> Tally:
    tally = Tally()
    with Client(server) as client:
        _ask_all(tally, client, names, every)
    return tally


def _ask_all(tally: Tally, client: Client, names: list[str], every: int) -> None:
    for row, name in enumerate(names):
        limits = [step for column, step in enumerate(STEPS) if (row * len(STEPS) + column) % every == 0]
        if not limits:
            continue
        schema = schemas()[name]
        status, body = client.ask(schema, 1, 1)
        shortest = 1
        if status == 400:
            needed = _SHORTEST.search(body["error"]["message"])
            if needed is None:
                tally.refused.append(f"{name}: {body['error']['message']}")
                continue
            shortest = int(needed[1])
            assert body["error"]["param"] == "max_tokens", body
        for more in limits:
            _judge(tally, name, shortest + more, client)


def _judge(tally: Tally, schema_name: str, limit: int, client: Client) -> None:
    schema = schemas()[schema_name]
    status, body = client.ask(schema, limit, limit)
    name = f"{schema_name} in {limit} tokens"
    tally.pairs += 1
    if status != 200:
        tally.broken.append(f"{name}: {status} {body}")
        return
    choice = body["choices"][0]
    text = choice["message"]["content"]
    tally.finish[choice["finish_reason"]] += 1
    if body["usage"]["completion_tokens"] > limit:
        tally.beyond.append(f"{name}: {body['usage']}")
    try:
        answer = json.loads(text, parse_constant=_no_json)
    except ValueError as error:
        tally.broken.append(f"{name}: {error}: {text!r}")
        return
    try:
        _validator(schema_name).validate(answer)
    except ValidationError as error:
        tally.invalid.append(f"{name}: {error.message[:200]}: {text!r} of {json.dumps(schema)[:300]}")


def _no_json(constant: str) -> Iterator[str]:
    raise ValueError(f"{constant} is no JSON")


@cache
def _validator(name: str) -> Any:
    return validator_of(schemas()[name])


def validator_of(schema: Any) -> Any:
    """jsonschema's validator of the schema's draft, with formats, and numbers as they are written."""
    kind = validator_for(schema)
    exact: Any = extend(kind, {"multipleOf": _multiple_of})  # type: ignore[no-untyped-call]
    return exact(schema, format_checker=kind.FORMAT_CHECKER)


def _multiple_of(validator: Any, divisor: float, instance: Any, _: Any) -> Iterator[ValidationError]:
    """By exact division: jsonschema's own, of doubles, says that 1.14 is no multiple of 0.01."""
    if not validator.is_type(instance, "number"):
        return
    if not math.isfinite(instance) or Fraction(repr(instance)) % Fraction(repr(divisor)):
        yield ValidationError(f"{instance!r} is not a multiple of {divisor!r}")
