"""Members of the formats of a structural tag, each checked, with its path in errors."""

from __future__ import annotations

import re
from typing import Any

from llgtrt.serving.errors import RequestError

MOST_REPEATED = 1000

NEUTRAL: tuple[Any, ...] = ("", [], False)
"""Values of members that are not known here with which they ask for nothing."""


def json_options(value: dict[str, Any], path: str) -> dict[str, Any]:
    """How the JSON of a schema is to be written, as a schema's own ``x-guidance`` says it."""
    options: dict[str, Any] = {}
    if value.get("strict_mode") is True:
        options["strict"] = True
    most = value.get("max_whitespace_cnt")
    if most is not None:
        if type(most) is not int or not 0 <= most <= MOST_REPEATED:
            at = f"{path}.max_whitespace_cnt"
            raise RequestError(f"{at} must be a number from 0 to {MOST_REPEATED}.", at)
        options["whitespace_pattern"] = rf"[ \t\n\r]{{0,{most}}}"
    if value.get("any_whitespace") is not False:
        return options
    if value.get("indent") is not None:
        raise RequestError(f"{path}.indent is not supported.", f"{path}.indent")
    separators = value.get("separators")
    if separators is None:
        separators = [", ", ": "]
    if not isinstance(separators, list) or [type(one) for one in separators] != [str, str]:
        raise RequestError(f"{path}.separators must be an array of two strings.", f"{path}.separators")
    item, key = (re.escape(one) for one in separators)
    return {**options, "whitespace_flexible": False, "item_separator": item, "key_separator": key}


def times(value: dict[str, Any], path: str) -> str:
    """How often the content of a ``repeat`` comes, in Lark."""
    least, most = value.get("min"), value.get("max")
    for name, one in (("min", least), ("max", most)):
        if type(one) is not int or not (0 if name == "min" else -1) <= one <= MOST_REPEATED:
            raise RequestError(f"{path}.{name} must be a number up to {MOST_REPEATED}.", f"{path}.{name}")
    assert isinstance(least, int)
    assert isinstance(most, int)
    if 0 <= most < least:
        raise RequestError(f"{path}.max is less than min.", f"{path}.max")
    return f"{{{least},}}" if most < 0 else f"{{{least},{most}}}"


def only_known(value: dict[str, Any], known: frozenset[str] | set[str], path: str) -> None:
    """Members that are not known might say something of what is to be enforced."""
    for name, member in value.items():
        if name not in known and member is not None and member not in NEUTRAL:
            at = f"{path}.{name[:60]}"
            raise RequestError(f"{at} is not supported.", at)


def member_text(value: dict[str, Any], name: str, path: str, *, empty: bool = False) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not (text or empty):
        raise RequestError(
            f"{path}.{name} must be a string{'' if empty else ', not empty'}.", f"{path}.{name}"
        )
    return text


def member_texts(value: dict[str, Any], name: str, path: str) -> list[str]:
    texts = value.get(name)
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise RequestError(f"{path}.{name} must be an array of strings.", f"{path}.{name}")
    return texts


def member_list(value: dict[str, Any], name: str, path: str) -> list[Any]:
    items = value.get(name)
    if not isinstance(items, list) or not items:
        raise RequestError(f"{path}.{name} must be an array, not empty.", f"{path}.{name}")
    return items
