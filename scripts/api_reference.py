"""Writes docs/api.md: routes and fields of the API, from the server's own OpenAPI document.

    python scripts/api_reference.py

starts a server with the simulated engine and asks it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llgtrt.serving.protocol.parse import REFUSED_FIELDS, UNSUPPORTED

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
OPENAI = ROOT / "tests" / "data" / "openai-openapi-subset.json"

OPENAI_REQUESTS = {
    "ChatRequest": "CreateChatCompletionRequest",
    "CompletionRequest": "CreateCompletionRequest",
    "ResponsesRequest": "CreateResponse",
}
"""Our models of bodies, and what OpenAI's description calls them."""

INTRODUCTION = """# The API

<!-- Generated from the server's OpenAPI document by `python scripts/api_reference.py`. Do not edit. -->

A running server shows the same at `/docs` and, for programs, at `/openapi.json`. Scripts to begin with, each
of which is run by a test: a plain [chat](../examples/chat.py), a [stream](../examples/stream.py), a
[pydantic schema](../examples/pydantic_schema.py), [tools](../examples/tools.py), a
[regular expression](../examples/regular_expression.py), a [choice](../examples/choice.py), a
[Lark grammar](../examples/lark_grammar.py), [log-probabilities](../examples/logprobs.py),
[several answers](../examples/several_answers.py), a [prefill](../examples/prefill.py),
[thinking](../examples/thinking.py).

- Keys: `Authorization: Bearer KEY` or `x-api-key: KEY` ([operations.md](operations.md)).
- `null` means "not given" in every field. Unknown fields are ignored with a line in the log, but those that
  would constrain or change the answer elsewhere are refused by name ([which](#fields-that-are-refused)).
- **ours** marks fields that OpenAI's API does not have; OpenAI's client sends them in `extra_body`.
- Errors have OpenAI's form, `{"error": {"message", "type", "param", "code"}}`, with the path of the field in
  `param`; the routes of other APIs have their own forms. 429 and 503 carry `Retry-After`.
- `/chat/completions`, `/completions` and `/models` are there without `/v1` too; `/health` and `/ping` are
  `/v1/health/ready`.
- Of other servers' own routes there are vLLM's `/tokenize`, `/detokenize`, `/tokenizer_info`, `/version`,
  `/rerank` and, for routers that count tokens, `/v1/chat/completions/render` and `/v1/completions/render`;
  llama.cpp's `/completion` (streamed without `[DONE]`; answers are sampled as by the other routes,
  and `n_probs` is `logprobs` of `/v1/completions`), `/infill`, `/apply-template`, `/props`, its names in
  `/tokenize` and `/detokenize`, and `/v1/chat/completions/input_tokens`; and Triton's. Not there, with what
  does the same here: llama.cpp's `/lora-adapters` (`/v1/models`) and `/slots`, vLLM's `/load` (`/metrics`);
  SageMaker's `/invocations`.
- `system_fingerprint` of chat and completions, in each chunk too, is a short hash of what answers depend on
  beside the request: the server's version, engine and model (sizes and samples of its files), options, chat
  template and defaults. While it stays the same, requests with a `seed` get the same answers on the same kind
  of machine.
- A request that does not say how to sample gets what the model's `generation_config.json` says
  (`server.generation_config`), else OpenAI's defaults.
"""


def page(document: dict[str, Any], openai: dict[str, Any]) -> str:
    """The page.

    Args:
        document: the server's OpenAPI document.
        openai: OpenAI's description of its API.
    """
    parts = [INTRODUCTION, *_routes(document), *_models(document, openai), *_refused()]
    return "\n".join(parts).rstrip() + "\n"


def _routes(document: dict[str, Any]) -> Iterator[str]:
    yield "## Routes\n"
    yield "| route | body | what |"
    yield "|---|---|---|"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            model = _body(operation)
            body = "" if model is None else f"[{model}](#{model.lower()})"
            what = f"{operation.get('summary', '')}. {operation.get('description', '')}"
            yield _row(f"`{method.upper()} {path}`", body, what)
    yield ""


def _models(document: dict[str, Any], openai: dict[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    for name in _needed(document):
        schema = schemas[name]
        theirs = _openai_fields(name, openai)
        yield f"## {name}\n"
        yield " ".join(schema.get("description", "").split()) + "\n"
        if "properties" not in schema:
            yield f"{_type(schema)}\n"
            continue
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        for field, value in schema["properties"].items():
            marks = "**required** " if field in schema.get("required", ()) else ""
            marks += "**ours** " if theirs is not None and field not in theirs else ""
            yield _row(f"`{field}`", _type(value), marks + value.get("description", ""))
        yield ""


def _refused() -> Iterator[str]:
    yield "## Fields that are refused\n"
    yield (
        "They would change the answer on servers that have them. Constraints under names that are not known "
        "here are refused as well; all other unknown fields are ignored and logged once.\n"
    )
    yield "| field | may be | because, or what to use |"
    yield "|---|---|---|"
    for name, why in sorted(REFUSED_FIELDS.items()):
        yield _row(f"`{name}`", "", why)
    for name, (harmless, instead) in UNSUPPORTED.items():
        yield _row(f"`{name}`", ", ".join(f"`{json.dumps(value)}`" for value in harmless), f"{instead}.")
    yield ""


def _needed(document: dict[str, Any]) -> list[str]:
    """The models of bodies, and those that they refer to, in the order in which they come up."""
    operations = [one for operations in document["paths"].values() for one in operations.values()]
    found = dict.fromkeys(model for one in operations if (model := _body(one)) is not None)
    waiting = list(found)
    while waiting:
        for reference in _references(document["components"]["schemas"][waiting.pop(0)]):
            if reference not in found:
                found[reference] = None
                waiting.append(reference)
    return list(found)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _references(one)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)


def _openai_fields(name: str, openai: dict[str, Any]) -> set[str] | None:
    if name not in OPENAI_REQUESTS:
        return None
    schemas = openai["components"]["schemas"]
    fields: set[str] = set()
    waiting = [schemas[OPENAI_REQUESTS[name]]]
    while waiting:
        schema = waiting.pop()
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        fields |= schema.get("properties", {}).keys()
        waiting += schema.get("allOf", [])
    return fields


def _body(operation: dict[str, Any]) -> str | None:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None or "$ref" not in content["schema"]:
        return None
    return str(content["schema"]["$ref"]).rpartition("/")[2]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            types = [_type(one) for one in schema[keyword] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(types))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind = str(schema.get("type", "any"))
    words = {"string": "text", "boolean": "true or false"}
    return words.get(kind, kind) + _range(schema)


def _range(schema: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return "".join(f", {sign} {schema[keyword]}" for keyword, sign in signs.items() if keyword in schema)


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _document() -> dict[str, Any]:
    """The OpenAPI document of a server that is started for it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.server import ServerProcess

    with ServerProcess("--backend", "sim", "--api-key", "k") as server:
        document: dict[str, Any] = server.get("/openapi.json").json()
    return document


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(_document(), json.loads(OPENAI.read_text())), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
