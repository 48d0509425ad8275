"""Merging of raw JSON values."""

from typing import Any


def merge(base: Any, patch: Any) -> Any:
    """``base`` overridden by ``patch``: objects merge by key, anything else replaces; ``null`` is a value.

    Neither argument is changed.
    """
    if not (isinstance(base, dict) and isinstance(patch, dict)):
        return patch
    merged = dict(base)
    for key, value in patch.items():
        merged[key] = merge(merged[key], value) if key in merged else value
    return merged
