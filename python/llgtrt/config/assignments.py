"""``--set section.key=value``: any option of the configuration on the command line."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .files import option_paths, parse_json5, path_text, resolve_paths, validate
from .merge import merge
from .root import Config


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """The raw configuration that ``--set`` gives, checked; later assignments win. Relative paths count from
    the current folder.

    Raises:
        ConfigError: an option does not exist, or its value is not JSON5 or has a wrong type; the message
            names the option.
    """
    content: dict[str, Any] = {}
    for assignment in assignments:
        content = merge(content, _assigned(assignment))
    return content


def _assigned(assignment: str) -> dict[str, Any]:
    path, sign, text = assignment.partition("=")
    path = path.strip()
    if not sign or not path:
        raise ConfigError(f"--set {assignment}: expected section.key=value, with a value in JSON5")
    content: Any = _value(path, text)
    for part in reversed(path.split(".")):
        content = {part: content}
    validate(Config, content, "--set")
    resolve_paths(content, Path.cwd())
    checked: dict[str, Any] = content
    return checked


def _value(path: str, text: str) -> Any:
    try:
        return parse_json5(text, f"--set {path}")
    except ConfigError:
        if path in map(path_text, option_paths(Config)) and text.strip():
            # What an unquoted text was meant to be.
            quoted = shlex.quote(f"{path}={_in_quotes(text)}")
            raise ConfigError(
                f"--set {path}: the value is not JSON5; a text has quotes around it: --set {quoted}"
            ) from None
        raise


def _in_quotes(text: str) -> str:
    from .printing import json_text

    return json_text(text)
