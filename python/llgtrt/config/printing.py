"""``--print-config``: the configuration as JSON5 that explains itself."""

import json
import re
from collections.abc import Iterator
from typing import Any

from .root import Config, description
from .section import Section

_UNSAFE = re.compile("[\u007f-\u009f\u2028\u2029\ud800-\udfff]")
"""Characters that JSON may hold as they are, but that break a terminal, a line comment or UTF-8."""

_INDENT = "  "


def print_config(config: Config) -> str:
    """JSON5 with every option and its description. Options that nothing sets are commented out.

    Given back as a configuration file it changes nothing.
    """
    lines = [*_comment(description(Config), ""), "{", *_options(config, _INDENT), "}"]
    return "\n".join(lines) + "\n"


def _options(section: Section, indent: str) -> Iterator[str]:
    fields = type(section).model_fields
    for position, (name, field) in enumerate(fields.items()):
        value = getattr(section, name)
        if position:
            yield ""
        if isinstance(value, Section):
            yield from _comment(description(type(value)), indent)
            yield f"{indent}{name}: {{"
            yield from _options(value, indent + _INDENT)
            yield f"{indent}}},"
            continue
        yield from _comment(field.description or "", indent)
        # What was set to its default stays set: for a token, null in a file is not the same as no word.
        live = name in section.model_fields_set or value != section.default_of(name)
        yield f"{indent}{'' if live else '// '}{name}: {json_text(_set_values(section, name))},"


def _set_values(section: Section, name: str) -> Any:
    """The value of an option; of objects in it what is set."""
    given = section.model_dump(include={name}, exclude_unset=True)
    return given[name] if name in given else section.model_dump(include={name})[name]


def json_text(value: Any) -> str:
    """A value on one line, non-ASCII text as it is."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _comment(text: str, indent: str) -> Iterator[str]:
    return (f"{indent}/// {line}" for line in text.splitlines())
