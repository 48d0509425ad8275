"""The file of ``server.api_key_file``: a key per line."""

import re
from pathlib import Path

from .errors import ConfigError
from .files import read_text, validate
from .keys import ApiKey

_LIMIT = re.compile(r"(max_concurrent|requests_per_minute)=([0-9]{1,9})")


def read_key_file(path: Path) -> list[ApiKey]:
    """The keys of a file, one per line: ``KEY``, or ``NAME KEY`` and then limits: ``requests_per_minute=60``.

    Empty lines and lines that begin with ``#`` say nothing.

    Raises:
        ConfigError: the file cannot be read, has no key, or a line of it is wrong. The message holds no key.
    """
    lines = enumerate(read_text(path).splitlines(), 1)
    keys = [
        _key(words, f"{path}:{number}")
        for number, line in lines
        if (words := line.split()) and not words[0].startswith("#")
    ]
    if not keys:
        raise ConfigError(f"{path}: there is no key in it")
    return keys


def _key(words: list[str], where: str) -> ApiKey:
    if len(words) == 1:
        return ApiKey(key=words[0])
    name, key, *limits = words
    matches = [_LIMIT.fullmatch(limit) for limit in limits]
    values = {match[1]: int(match[2]) for match in matches if match is not None}
    if len(values) < len(limits):
        raise ConfigError(
            f"{where}: after NAME and KEY come max_concurrent=N and requests_per_minute=N, each at most once"
        )
    return validate(ApiKey, {"name": name, "key": key, **values}, where)
