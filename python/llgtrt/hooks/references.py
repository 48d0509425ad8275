"""From the name of code of the operator's to the object: an entry point, a module or a file."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from llgtrt.config import ConfigError

from .files import run_file


def load_reference(reference: str, option: str, group: str, module: str) -> Any:
    """What a reference names.

    Args:
        reference: the name of an entry point, ``module:Name`` or ``path/to/file.py:Name``.
        option: the option that has the reference, for errors.
        group: of the entry points.
        module: the name that a file is imported under.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    name, separator, member = reference.rpartition(":")
    if not separator:
        return _entry_point(reference, option, group)
    found = run_file(Path(name), module) if name.endswith(".py") else _module(name, option)
    if not hasattr(found, member):
        raise ConfigError(f"{option}: {name} has no {member}")
    return getattr(found, member)


def _entry_point(name: str, option: str, group: str) -> Any:
    found = list(importlib.metadata.entry_points(group=group, name=name))
    if not found:
        known = sorted({one.name for one in importlib.metadata.entry_points(group=group)})
        offered = f"installed are {', '.join(known)}" if known else "none is installed"
        raise ConfigError(
            f"{option}: no entry point {name!r} in the group {group} ({offered}); "
            "write module:Class or file.py:Class for others"
        )
    if len({one.value for one in found}) > 1:
        values = ", ".join(sorted(one.value for one in found))
        raise ConfigError(f"{option}: several packages offer a {name!r}: {values}; write one of them")
    try:
        return found[0].load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{option}: {found[0].value}: {type(error).__name__}: {error}") from error


def _module(name: str, option: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{option}: {name}: {type(error).__name__}: {error}") from error
