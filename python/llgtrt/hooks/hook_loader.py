"""From the name of a hook to its class: an entry point, a module or a file."""

from __future__ import annotations

import asyncio
import inspect
import logging
from pathlib import Path
from typing import Any

from llgtrt.config import ConfigError, PyConfig

from .files import describe_failure
from .references import load_reference
from .requests import METHODS
from .runner import HookRunner
from .user_loop import UserLoop

logger = logging.getLogger("llgtrt.hooks")

ENTRY_POINTS = "llgtrt.hooks"
"""Group of the entry points that packages offer hooks by."""

START_FAILED_S = 1.0
"""How long the threads of a hook that cannot be made may keep the process that is to end."""

MODULE = "llgtrt_hook"
"""Name that a file is imported under."""


def load_hook(reference: str) -> type[Any]:
    """The class of a hook.

    Args:
        reference: the name of an entry point, ``module:Class`` or ``path/to/file.py:Class``.

    Raises:
        ConfigError: there is none, it cannot be imported, or it does not have the form of a hook.
    """
    kind = load_reference(reference, "py.hooks", ENTRY_POINTS, MODULE)
    if not isinstance(kind, type):
        raise ConfigError(f"py.hooks: {reference} is no class")
    _check(kind, reference)
    return kind


async def start_hook(kind: type[Any], section: PyConfig) -> HookRunner:
    """The hook, made on another thread; its constructor gets ``py.hooks_arguments`` if it takes an argument.

    Raises:
        ConfigError: its constructor fails.
    """
    loop = UserLoop(section.hooks_threads, "llgtrt-hook")
    try:
        hook = await loop.in_thread(_make, kind, section)
    except BaseException:
        await asyncio.to_thread(loop.stop, START_FAILED_S)
        raise
    logger.info("hook %s", section.hooks)
    return HookRunner(hook, loop, section.hooks_timeout_s)


def _make(kind: type[Any], section: PyConfig) -> object:
    try:
        return kind(section.hooks_arguments) if _takes_arguments(kind) else kind()
    except (Exception, SystemExit) as error:
        raise ConfigError(_describe(kind, error)) from error


def _takes_arguments(kind: type[Any]) -> bool:
    try:
        return bool(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        return False


def _describe(kind: type[Any], error: BaseException) -> str:
    try:
        return describe_failure(Path(inspect.getfile(kind)), error)
    except TypeError:
        return f"py.hooks: {type(error).__name__}: {error}"


def _check(kind: Any, reference: str) -> None:
    found = {name: getattr(kind, name) for name in METHODS if hasattr(kind, name)}
    if not found:
        raise ConfigError(f"py.hooks: {reference} has none of {', '.join(METHODS)}")
    for name, method in found.items():
        if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            raise ConfigError(f"py.hooks: {reference}.{name} must not be a generator")
        try:
            bound = isinstance(inspect.getattr_static(kind, name), staticmethod | classmethod)
            inspect.signature(method).bind(*[None] * (METHODS[name] + (0 if bound else 1)))
        except TypeError as error:
            arguments = "(self, request)" if METHODS[name] == 1 else f"(self, request, {name[3:]})"
            raise ConfigError(f"py.hooks: {reference}.{name} must take {arguments}: {error}") from error
