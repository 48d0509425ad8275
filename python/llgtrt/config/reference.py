"""The reference page of all options, generated from the models: ``python -m llgtrt.config.reference``."""

import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from pydantic.fields import FieldInfo

from .arguments import FLAGS, environment_variable
from .models import SECTIONS, ModelEntry
from .printing import json_text
from .root import Config, description
from .section import Section

PAGE = Path("docs/config.md")
"""Where the page is, from the root of the repository."""

_INTRODUCTION = """# Configuration

<!-- Generated from the configuration models by `python -m llgtrt.config.reference`. Do not edit. -->

```
llgtrt serve ENGINE
llgtrt ENGINE -C llgtrt.json5
```

What the command line says wins over the environment, which wins over configuration files, which win over
the defaults.

## Command line

`ENGINE` is a GGUF file, a folder with one, or a TensorRT-LLM engine folder. Without it the demo model is
served, if it is installed. `LLGTRT_CONFIG` holds several files separated by colons; the variables of other
flags that may be repeated hold a value per line; `1` turns a switch on.
"""

_SET = """
`--set` takes every option below, such as `--set llguidance.max_depth=50`, `--set 'server.uds="/run/l.sock"'`
or `--set 'server.cors_origins=["https://example.com"]'`.
"""

_FILES = """
## Configuration files

Files are JSON5: JSON with comments, trailing commas and unquoted keys. Without `-C` the file `llgtrt.json5`
in the engine folder (beside a GGUF file) is read if it exists. Several files are merged in order: objects
merge key by key, any other value replaces the earlier one, and `null` is a value. An unknown key is an error.
Relative paths count from the folder of the file that names them. An empty file that was not named counts as
absent.

```
llgtrt ENGINE --print-config > llgtrt.json5
```

writes a file with every option, its description and its default commented out.

The chat template is the first of: `--chat-template`, `tokenizer.chat_template` in a configuration file,
`chat_template.j2` beside a file of `-C` or in the engine folder, `chat_template.jinja` or
tokenizer_config.json in the tokenizer folder, the model file's own, ChatML.

Where ENGINE is a file, nothing beside it is read but `llgtrt.json5`, and that may not name an input
processor: the folder of a download holds anything. Name the folder as ENGINE where its files are meant.
"""


def reference() -> str:
    """The page."""
    lines = [_INTRODUCTION, *_flag_table(), _SET.rstrip(), _FILES]
    for name, kind in sections(Config):
        lines += [f"## `{name}`", "", description(kind), "", *_option_table(kind), ""]
    lines += ["## `models`", "", _text(Config, "models"), "", description(ModelEntry), ""]
    lines += [*_option_table(ModelEntry), _row(f"`{'`, `'.join(SECTIONS)}`", "objects", "", "as above"), ""]
    return "\n".join(lines).rstrip() + "\n"


def sections(model: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Every section below a model, with its path."""
    for name, field in model.model_fields.items():
        if (kind := _section(field)) is not None:
            yield f"{prefix}{name}", kind
            yield from sections(kind, f"{prefix}{name}.")


def _text(kind: type[Section], name: str) -> str:
    return " ".join((kind.model_fields[name].description or "").split())


def _flag_table() -> Iterator[str]:
    yield "| flag | variable | default | meaning |"
    yield "|---|---|---|---|"
    for name, flag in FLAGS.items():
        names = ", ".join(f"`{text}`" for text in flag.names)
        if flag.choices:
            names += f" `{{{','.join(flag.choices)}}}`"
        default = f"`{flag.default}`" if flag.default else ""
        yield _row(names, f"`{environment_variable(name)}`", default, flag.help)


def _option_table(kind: type[Section]) -> Iterator[str]:
    yield "| option | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in kind.model_fields.items():
        if _section(field) is not None:
            continue
        default = "" if field.is_required() else f"`{json_text(kind.default_of(name))}`"
        yield _row(
            f"`{name}`", _type_text(field.annotation) + _range_text(field), default, field.description or ""
        )


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _section(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _type_text(kind: Any) -> str:
    if kind is JsonValue:
        return "any"
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _type_text(typing.get_args(kind)[0])
    if origin is typing.Literal:
        return " or ".join(f"`{json_text(value)}`" for value in typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_text(option) for option in typing.get_args(kind))
    if origin in (list, tuple):
        return f"list of {_type_text(typing.get_args(kind)[0])}"
    if isinstance(kind, type) and issubclass(kind, Section):
        return "objects"
    names: dict[Any, str] = {
        bool: "true or false",
        int: "integer",
        float: "number",
        str: "text",
        type(None): "null",
        dict: "object",
    }
    return names.get(origin or kind, str(kind))


def _range_text(field: FieldInfo) -> str:
    bounds = []
    for constraint in field.metadata:
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if (bound := getattr(constraint, attribute, None)) is not None:
                bounds.append(f"{sign} {bound}")
    return f", {', '.join(bounds)}" if bounds else ""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(reference(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    main()
