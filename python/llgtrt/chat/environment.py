"""The Jinja2 environment that chat templates of Hugging Face models expect.

Templates come from the operator or from the model's files, never from a request. They run in a sandbox,
because a downloaded model file is not code that anybody has read.
"""

from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from llgtrt.patient_json import json_of


class RefusedError(jinja2.TemplateError):
    """The template called ``raise_exception``: it does not support these messages."""


class _GenerationBlock(Extension):
    """``{% generation %}...{% endgeneration %}`` marks what a model was trained to write; here, just text."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def template_environment() -> jinja2.Environment:
    """A sandboxed environment with the functions and filters that chat templates use."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: not escaped for HTML, keys in their order."""
    return json_of(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object = "") -> NoReturn:
    raise RefusedError(str(message))


def _strftime_now(pattern: str) -> str:
    # Local time, as in transformers.
    return datetime.now().strftime(pattern)
