"""JSON Schemas rewritten into what llguidance holds: without a server, without a model.

For users of any engine that constrains answers with llguidance (vLLM, SGLang, llama.cpp and others): put
:func:`normalize` before the engine, and hand it the grammar that comes back. ``not``, ``oneOf``, ``if``,
``dependentSchemas``, look-ahead, formats and the like are gone from it, and answers still mean the same::

    from llgtrt.schema import normalize

    normalized = normalize({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})
    request["structured_outputs"] = {"grammar": normalized.lark()}

Every function is pure, may be called from any thread, releases the GIL while it works, and is bounded: a
schema that takes too long is refused. docs/schema.md says more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from llgtrt.engine import GrammarChecker, GrammarSpec, LlgtrtError, explain_schema

Schema = Mapping[str, Any] | bool
"""A JSON Schema of draft 4 to 2020-12; ``$schema`` says which, 2020-12 without it."""

Residual = Literal["refuse", "verify"]
"""What to do with what no grammar can hold: refuse the schema, or leave it open and name it."""

_WRAPPED = "urn:llgtrt:schema"


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason to refuse a schema."""

    path: str
    """Where, such as ``properties.a.not``; empty for the schema as a whole."""
    keyword: str | None
    """The keyword that is at fault, if it is one."""
    message: str
    """Why."""
    hint: str | None
    """What to write instead."""


@dataclass(frozen=True, slots=True)
class RuleUse:
    """A rule that rewrote the schema; docs/json-schema.md tells what each does."""

    name: str
    count: int
    """Subschemas that it was used on."""
    paths: tuple[str, ...]
    """The first ten of them."""


@dataclass(frozen=True, slots=True)
class OpenConstraint:
    """A constraint that the grammar does not hold: check it when an answer is complete."""

    path: str
    keyword: str


@dataclass(frozen=True, slots=True)
class Normalized:
    """A schema in the terms of llguidance."""

    grammar: dict[str, Any] | str
    """A JSON schema (``dict``) that llguidance holds, or the text of a Lark grammar in its dialect."""
    rules: tuple[RuleUse, ...]
    """What was rewritten; empty if the schema could stay as it is."""
    residual: tuple[OpenConstraint, ...]
    """What answers have to be checked for after the fact; always empty with ``residual="refuse"``."""

    @property
    def is_lark(self) -> bool:
        """Whether the grammar is the text of a Lark grammar."""
        return isinstance(self.grammar, str)

    def llguidance(self) -> str:
        """The grammar as llguidance serialises grammars, whichever kind it is: a JSON object as text."""
        kind = "lark_grammar" if self.is_lark else "json_schema"
        return json.dumps({"grammars": [{kind: self.grammar}]})

    def lark(self) -> str:
        """The grammar as text in llguidance's dialect of Lark, whichever kind it is."""
        return self.grammar if isinstance(self.grammar, str) else f"start: %json {json.dumps(self.grammar)}\n"


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known about a schema."""

    ok: bool
    """Whether :func:`normalize` takes it."""
    problems: tuple[Problem, ...]
    """Why not: as many reasons as could be found at once."""
    rules: tuple[RuleUse, ...]
    residual: tuple[OpenConstraint, ...]


class SchemaError(ValueError):
    """A schema is refused, or an instance cannot be decided on.

    Attributes:
        problems: the reasons; at least one.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Shows the first problem."""
        first = problems[0]
        hint = f" (hint: {first.hint})" if first.hint else ""
        super().__init__(f"{first.path or 'the schema'}: {first.message}{hint}")
        self.problems = problems

    @property
    def path(self) -> str:
        """Where the first problem is."""
        return self.problems[0].path

    @property
    def keyword(self) -> str | None:
        """The keyword that the first problem is about."""
        return self.problems[0].keyword

    @property
    def hint(self) -> str | None:
        """What to write instead."""
        return self.problems[0].hint


def normalize(schema: Schema, *, residual: Residual = "verify", standard: bool = False) -> Normalized:
    """Rewrites a schema so that llguidance holds it.

    Args:
        schema: the schema; it is not changed.
        residual: what to do with what no grammar can hold, such as a long ``uniqueItems``.
        standard: keep to the letter of the standard. Otherwise an object that names ``properties`` and says
            nothing of others takes no others, because models invent some (rule ``closed``).

    Raises:
        SchemaError: it is malformed, allows nothing, or needs what no grammar can hold.
        TypeError: it holds what is not JSON.
    """
    report = _report(schema, [], residual, standard)
    if not report["ok"]:
        raise SchemaError(_problems(report))
    return Normalized(report["normalized"], _rules(report), _open(report))


def check(schema: Schema, *, residual: Residual = "verify", standard: bool = False) -> Report:
    """Says what is wrong with a schema, and how it would be rewritten.

    Args:
        schema: the schema.
        residual: as for :func:`normalize`.
        standard: as for :func:`normalize`.

    Raises:
        TypeError: it holds what is not JSON.
    """
    report = _report(schema, [], residual, standard)
    return Report(report["ok"], _problems(report), _rules(report), _open(report))


def accepts(schema: Schema, instance: Any, *, standard: bool = False) -> bool:
    """Whether an engine under this schema could answer with this value, in some order of its keys.

    Never true for an instance that does not satisfy the schema. False for a valid one only where the schema
    has the rule ``closed`` or ``narrowed`` (:attr:`Normalized.rules`), or a number is spelled unusually.

    Args:
        schema: the schema.
        instance: a value of JSON: dicts, lists, strings, finite numbers, booleans, None.
        standard: as for :func:`normalize`.

    Raises:
        SchemaError: the schema is refused, or the instance has too many orders of keys to decide.
        TypeError: one of them holds what is not JSON.
    """
    # As a member of an object, since a string by itself is taken for the text of an answer.
    report = _report(_with_one_member(schema), [_text({"value": instance})], "verify", standard)
    if not report["ok"]:
        raise SchemaError(_problems(_report(schema, [], "verify", standard)) or _problems(report))
    verdict = report["instances"][0]
    accepted: bool | None = verdict["accepted"]
    if accepted is None:
        raise SchemaError((Problem("", None, f"the instance is not decided on: {verdict['reason']}", None),))
    return accepted


def explain(schema: Schema, *, residual: Residual = "verify", standard: bool = False) -> str:
    """The stages that the schema goes through, as Markdown: formula, normal form, what is written, grammar.

    Args:
        schema: the schema.
        residual: as for :func:`normalize`.
        standard: as for :func:`normalize`.

    Raises:
        SchemaError: the schema is refused.
        TypeError: it holds what is not JSON.
    """
    try:
        return explain_schema(_text(schema), residual=residual, standard=standard)
    except LlgtrtError as error:
        raise SchemaError((Problem(error.param or "", None, error.message, None),)) from error


def _with_one_member(schema: Schema) -> dict[str, Any]:
    """A schema for objects whose member ``value`` has ``schema``; references within it stay as they are."""
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {"value": schema},
        "required": ["value"],
        "additionalProperties": False,
    }
    if not isinstance(schema, Mapping):
        return wrapped
    draft = schema.get("$schema")
    if isinstance(draft, str):
        wrapped["$schema"] = draft
    keyword = "id" if isinstance(draft, str) and "draft-04" in draft else "$id"
    identifier = schema.get(keyword, _WRAPPED)
    wrapped["properties"] = {"value": {"$ref": identifier}}
    wrapped["definitions"] = {"schema": {**schema, keyword: identifier}}
    return wrapped


def _report(schema: Schema, instances: list[str], residual: Residual, standard: bool) -> dict[str, Any]:
    try:
        text = _checker(standard).report(
            GrammarSpec.json_schema(_text(schema)), instances=instances, residual=residual
        )
    except LlgtrtError as error:
        raise SchemaError((Problem(error.param or "", None, error.message, None),)) from error
    report: dict[str, Any] = json.loads(text)
    return report


@cache
def _checker(standard: bool) -> GrammarChecker:
    return GrammarChecker(json.dumps({"standard": standard}))


def _text(value: Any) -> str:
    """JSON text. Half of a surrogate pair stays an escape, which the core refuses with its place."""
    plain = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain, allow_nan=False)


def _problems(report: dict[str, Any]) -> tuple[Problem, ...]:
    return tuple(Problem(**problem) for problem in report["errors"])


def _rules(report: dict[str, Any]) -> tuple[RuleUse, ...]:
    return tuple(RuleUse(rule["name"], rule["count"], tuple(rule["paths"])) for rule in report["rules"])


def _open(report: dict[str, Any]) -> tuple[OpenConstraint, ...]:
    return tuple(OpenConstraint(left["path"], left["keyword"]) for left in report["residual"])
